"""From source text to a syntax tree."""

from lash.lang.parse.parser import parse as parse
