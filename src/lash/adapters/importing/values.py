"""Values of columns, as the libraries that wrote them understand them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime

from lash.adapters.importing.found import RawRow
from lash.adapters.importing.source import Row


def moment(value: object) -> datetime | None:
    """Return a point in time: a datetime, ISO text, or seconds since 1970; UTC unless it says otherwise.

    Raises ValueError for anything else.
    """
    if value is None:
        return None
    if isinstance(value, int | float):
        try:
            return datetime.fromtimestamp(value, UTC)
        except (OverflowError, OSError) as error:
            raise ValueError(f"{value} is not a time") from error
    found = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def with_own_columns(table: str, row: Row, known: Collection[str]) -> list[RawRow]:
    """Return the row, to be kept, if it has values in columns that are not the framework's."""
    own = sorted(name for name, value in row.items() if name not in known and value is not None)
    return [RawRow(table=table, row=row, reason=f"columns without a counterpart: {', '.join(own)}")] if own else []
