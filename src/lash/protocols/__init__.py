"""Protocols: how other programs reach agents and storages, each an optional module.

`lash.protocols.agui` and `lash.protocols.vercel` have a function ``routes`` for front ends; they need Starlette, from
the extra ``web``. `lash.protocols.a2a` answers other agents, and `lash.protocols.mcp` the assistants of operators; they
need extras of their names. Authentication is that of your application, unless a module says how it checks a request.
"""
