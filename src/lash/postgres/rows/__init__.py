"""Calls of named statements and mapping of rows, one module or folder for each noun."""
