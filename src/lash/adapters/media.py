"""Media types of frameworks as media types of lash, which have no parameters."""

from __future__ import annotations

import re
from typing import Final

_BYTES: Final = "application/octet-stream"
_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")


def media_type_of(mime_type: str | None) -> str:
    """Return the type without parameters, such as a charset; the type of any bytes if it is missing or malformed."""
    bare = (mime_type or "").partition(";")[0].strip().lower()
    return bare if _TYPE.fullmatch(bare) else _BYTES
