"""From a syntax tree to source text."""
