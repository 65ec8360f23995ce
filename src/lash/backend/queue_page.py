"""Which query reads a page of the queued batches of all sessions, on every backend."""

from __future__ import annotations

from typing import Final

QUEUE_PAGES: Final = {
    "all": "queue_all",
    "prefix": "queue_all_prefix",
    "delayed": "queue_all_delayed",
    "claimed": "queue_all_claimed",
}
"""The query of each way of reading a page."""
