"""The ``lash`` command: one module for each group of commands; `shell` and `command` are what they share."""
