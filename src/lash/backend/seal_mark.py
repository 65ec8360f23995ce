"""Whether a storage is sealed, which opening it checks before any value is read or written."""

from __future__ import annotations

from typing import Final

from lash.base.seal import Seals, is_sealed
from lash.errors import CorruptData, StorageFailure
from lash.plan.sealed import SECRET
from lash.stores.seal import SealRows

MARK_NAME: Final = "sealed"
"""The row of the mark among the secrets of a storage."""
_KNOWN: Final = b"lash"


async def check_mark(rows: SealRows, seals: Seals) -> None:
    """Raise CannotUnseal if the storage is sealed and the sealer is missing or does not have its key.

    The first opening with a sealer writes the mark. It fails if it cannot: a storage that was opened on a full disk or
    on a standby may write later, and sealed values without a mark would let a program without the sealer write plain
    ones among them.
    """
    mark = await rows.mark()
    if mark is not None and is_sealed(mark):
        if seals.open_content(SECRET, mark, MARK_NAME) != _KNOWN:
            raise CorruptData("the mark of the sealed storage is another value")
    elif seals.is_active:
        try:
            await rows.keep_mark(seals.content(SECRET, _KNOWN, MARK_NAME))
        except StorageFailure as error:
            raise StorageFailure(
                f"cannot mark the storage as sealed; open it with its sealer and a role that may write once: {error}",
                outcome_unknown=error.outcome_unknown,
            ) from error
