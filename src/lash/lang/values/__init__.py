"""Values of programs, their coercions, and the builtins."""
