"""Calls of named statements and mapping of rows, one module or package for each noun."""
