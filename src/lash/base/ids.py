"""Identifiers that sort by the time of their creation."""

from __future__ import annotations

import os
import time


def new_id() -> str:
    """Return 32 hex digits in the layout of UUID version 7: milliseconds first, then random bits."""
    milliseconds = time.time_ns() // 1_000_000
    random_bits = int.from_bytes(os.urandom(10))
    high, low = (random_bits >> 62) & 0xFFF, random_bits & ((1 << 62) - 1)
    value = (milliseconds << 80) | (0x7 << 76) | (high << 64) | (0b10 << 62) | low
    return f"{value:032x}"
