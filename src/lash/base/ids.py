"""Identifiers that sort by the time of their creation."""

from __future__ import annotations

import os
import time
from typing import Final

_VARIANTS: Final = "89ab"
"""The digits that say that the layout is one of RFC 9562, with two random bits each."""


def new_id() -> str:
    """Return 32 hex digits in the layout of UUID version 7: milliseconds first, then random bits."""
    random = os.urandom(10)
    digits = random.hex()
    return f"{time.time_ns() // 1_000_000:012x}7{digits[:3]}{_VARIANTS[random[9] & 3]}{digits[3:18]}"
