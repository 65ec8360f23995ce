"""How adapters store what their framework gives them. These modules work without the framework.

An adapter writes with them, and so does the import of an existing database of the framework.
"""
