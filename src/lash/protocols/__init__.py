"""Protocols of front ends: `lash.protocols.agui` for AG-UI, `lash.protocols.vercel` for the Vercel AI SDK.

Each has a function ``routes`` for an ASGI application of your own. They need Starlette, from the extra ``web``.
Authentication is that of your application: the routes answer every request that reaches them.
"""
