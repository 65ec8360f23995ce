"""``/live``, ``/ready`` and ``/metrics`` of the console.

The figures are those of the storage: the console runs no turns. Unlike those of a worker, the answers come from the
event loop, so a probe of a blocked loop gets none.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from lash.model.lease import LeaseOwner
from lash.runtime.hooks import Hooks
from lash.runtime.worker.measures import measure_storage
from lash.stores.storage import Storage
from lash.telemetry.health import readiness
from lash.telemetry.prometheus import CONTENT_TYPE, PrometheusHook
from lash.web.edge import METRICS, PROBES

_EVERY_S: Final = 5.0
"""How old figures may be: more readers than one Prometheus cost the storage nothing."""
_LIVE, _READY = PROBES


class Probes:
    """Answers probes, and reads the figures of the storage for Prometheus."""

    def __init__(self, storage: Callable[[], Storage], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._storage = storage
        self._clock = clock
        self._metrics = PrometheusHook()
        self._hooks = Hooks([self._metrics])
        self._owner = LeaseOwner(owner_id="console", incarnation_id=secrets.token_hex(8))
        self._reading = asyncio.Lock()
        self._read_at: float | None = None

    def routes(self) -> list[Route]:
        """Return the three routes."""
        return [
            Route(_LIVE, self._live, methods=["GET"]),
            Route(_READY, self._ready, methods=["GET"]),
            Route(METRICS, self._figures, methods=["GET"]),
        ]

    async def _live(self, _request: Request) -> Response:
        return PlainTextResponse("live\n")

    async def _ready(self, request: Request) -> Response:
        found = await readiness(self._storage().work.check_schema)
        # The reason may name tables and hosts: it is for visitors with access.
        reason = found.text if "lash_visitor" in request.scope else "ready\n" if found.is_well else "not ready\n"
        return PlainTextResponse(reason, found.status)

    async def _figures(self, _request: Request) -> Response:
        async with self._reading:
            if self._read_at is None or self._clock() - self._read_at >= _EVERY_S:
                await measure_storage(self._storage(), self._hooks, self._owner)
                self._read_at = self._clock()
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)
