"""Calls of named queries and mapping of rows, one module or folder for each noun."""
