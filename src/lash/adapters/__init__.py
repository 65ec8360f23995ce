"""lash below other frameworks: their own storage interfaces, on a lash storage.

Each module needs its framework, which an extra of the same name installs: ``lash-runtime[langgraph]``.
"""
