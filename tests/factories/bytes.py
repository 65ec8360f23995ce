"""A byte store that a test scripts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from lash.model.session.session import Durability

Hook: TypeAlias = Callable[[str], Awaitable[None]]


class ScriptedBytes:
    """Bytes in a dictionary. A hook is awaited before each call of its kind; its exception fails the call."""

    durability = Durability.INLINE

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.calls: list[str] = []
        self.before_put: Hook | None = None
        self.before_get: Hook | None = None
        self.before_delete: Hook | None = None
        self.before_tidy: Hook | None = None

    async def put(self, attachment_id: str, content: bytes) -> None:
        await self._called("put", attachment_id, self.before_put)
        self.contents[attachment_id] = content

    async def get(self, attachment_id: str) -> bytes | None:
        await self._called("get", attachment_id, self.before_get)
        return self.contents.get(attachment_id)

    async def delete(self, attachment_id: str) -> None:
        await self._called("delete", attachment_id, self.before_delete)
        self.contents.pop(attachment_id, None)

    async def sweep_stale(self) -> int:
        await self._called("sweep_stale", "", self.before_tidy)
        return 0

    async def _called(self, what: str, attachment_id: str, hook: Hook | None) -> None:
        self.calls.append(what)
        if hook is not None:
            await hook(attachment_id)
