"""Protocols through which other programs reach agents and storages.

`lash.protocols.agui` and `lash.protocols.vercel` serve front ends, with AG-UI and the stream of the Vercel AI SDK. Each
has a function ``routes`` for an ASGI application of your own. `lash.protocols.mcp` serves operators, and
`lash.protocols.a2a` other agents.
"""
