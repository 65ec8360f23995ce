"""Calls of named queries and mapping of rows, one module or package for each noun."""
