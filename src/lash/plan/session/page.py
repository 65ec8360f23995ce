"""Lists of sessions: by which index a page is read, from where, and its entries."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, NamedTuple

import msgspec

from lash.base.codec import encode
from lash.base.limits import (
    MAX_IDENTIFIER_LENGTH,
    MAX_INTEGER,
    MIN_INTEGER,
    check_identifier,
    check_integer,
    check_limit,
    check_text,
    prefix_end,
)
from lash.errors import CorruptData, InvalidInput
from lash.model.session.checkpoint import Checkpoint
from lash.model.session.session import (
    SessionCounts,
    SessionFilter,
    SessionOrder,
    SessionPage,
    SessionState,
    SessionSummary,
)
from lash.plan.sealed import CONFIG, TURN_STATE
from lash.plan.session.checkpoint import CheckpointRow, ComponentRow, decode_checkpoint
from lash.plan.session.meta import MetaRow, check_labels, decode_meta, label_terms
from lash.plan.session.search import search_words
from lash.plan.session.session import decode_head

_FEW: Final = frozenset({SessionState.RUNNING, SessionState.QUEUED, SessionState.WAITING})
"""The states that have indexes of their own; most sessions are idle."""
_STATES: Final[dict[str | None, SessionState]] = {state.value: state for state in SessionState}
_SORTED: Final = frozenset({"label_active", "prefix", "search", "source", "state"})
"""The ways of reading that sort what they find."""


class IdRange(NamedTuple):
    """Ids from the first on and before the end, by bytes."""

    first: str
    end: str


class PageRow(MetaRow, frozen=True, array_like=True, gc=False):
    """One session of a list. The columns from ``state`` on are None unless the list was asked for them."""

    config: Annotated[str | None, CONFIG]
    current_frame_id: str | None
    leaf_node_id: str | None
    checkpoint_ref: str | None
    node_count: int
    state: str | None
    waiting_for: str | None
    queued: int | None
    dead: int | None
    waits: int | None
    turn_state: Annotated[str | None, TURN_STATE]
    plugin_snapshot_revision: int | None


class PageParts(msgspec.Struct, frozen=True, kw_only=True):
    """What each session of a list shows beside its metadata."""

    head: bool = False
    state: bool = False
    counts: bool = False
    checkpoint: bool = False


class PagePosition(msgspec.Struct, frozen=True):
    """The last session of a page: the time of its last commit, or 0 in the order of creation, and its key."""

    at_ms: int
    key: int


class PreparedPage(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request for one page of sessions.

    ``way`` names the index that is read: that of the most selective part of the filter. This is ``words`` if the filter
    has a text, and ``lead`` if the list is read by an owner or a label; ``terms`` are the others. ``limit`` is one more
    than the page has, to see if there is a next one.
    """

    way: str
    wanted: SessionFilter
    words: tuple[str, ...]
    lead: tuple[str, str] | None
    terms: dict[str, str]
    order: SessionOrder
    oldest_first: bool
    after: PagePosition | None
    parts: PageParts
    limit: int

    @property
    def place(self) -> dict[str, int | str | None]:
        """The arguments of this way of reading: of its index, and where the page begins."""
        if self.way in _SORTED:
            place = self._sorted_place()
        elif self.way.startswith("active"):
            place = self._active_place()
        else:
            place = {"key": self._after.key}
        if self.way == "prefix":
            place |= {"prefix_end": prefix_end(self.wanted.prefix or "")}
        if self.way in ("search", "source"):
            place |= {"source_session_id": self.wanted.source_session_id}
        if self.lead is not None:
            place |= {"lead_key": self.lead[0], "lead_value": self.lead[1]}
        return place

    @property
    def _after(self) -> PagePosition:
        start = MIN_INTEGER if self.oldest_first else MAX_INTEGER
        return PagePosition(start, start) if self.after is None else self.after

    def _sorted_place(self) -> dict[str, int | str | None]:
        """Return the position among signed keys, which grow along the list in either direction."""
        sign = 1 if self.oldest_first else -1
        after = self.after
        at_ms, key = (MIN_INTEGER, MIN_INTEGER) if after is None else (after.at_ms * sign, after.key * sign)
        by_activity = int(self.order is SessionOrder.ACTIVE)
        return {"by_activity": by_activity, "sign": sign, "sorted_at": at_ms, "sorted_key": key}

    def _active_place(self) -> dict[str, int | str | None]:
        """Return the position, and the first and the last moment of activity that the page can have."""
        at_ms, key = self._after.at_ms, self._after.key
        after, before = self.wanted.active_after_ms, self.wanted.active_before_ms
        first = MIN_INTEGER if after is None else min(after, MAX_INTEGER - 1) + 1
        last = MAX_INTEGER if before is None else max(before, MIN_INTEGER + 1) - 1
        if self.oldest_first:
            first = max(first, at_ms)
        else:
            last = min(last, at_ms)
        return {"at_ms": at_ms, "key": key, "first_ms": first, "last_ms": last}

    @property
    def needs_state(self) -> bool:
        return self.parts.state or self.wanted.state is not None


def prepare_page(
    wanted: SessionFilter,
    *,
    order: SessionOrder,
    oldest_first: bool,
    parts: PageParts,
    limit: int,
    cursor: str | None,
) -> PreparedPage:
    """Check the arguments of a list, or raise InvalidInput."""
    check_filter(wanted)
    if not isinstance(order, SessionOrder):
        raise InvalidInput(f"expected a SessionOrder, got {order!r:.80}")
    way = _way(wanted, order, oldest_first=oldest_first)
    terms = label_terms(wanted.owner, wanted.labels)
    lead = next(iter(terms.items())) if way.startswith("label") else None
    words = () if wanted.text is None else search_words(wanted.text)
    return PreparedPage(
        way=way,
        wanted=wanted,
        words=words,
        lead=lead,
        terms=dict(term for term in terms.items() if term != lead),
        order=order,
        oldest_first=oldest_first,
        after=decode_cursor(cursor, order, oldest_first=oldest_first),
        parts=parts,
        limit=check_limit(limit) + 1,
    )


def check_filter(wanted: object) -> SessionFilter:
    """Return the filter, or raise InvalidInput."""
    if not isinstance(wanted, SessionFilter):
        raise InvalidInput(f"expected a SessionFilter, got {type(wanted).__name__}")
    if wanted.prefix is not None:
        check_text("prefix", wanted.prefix, limit=255)
    for name in ("owner", "agent", "source_session_id"):
        value = getattr(wanted, name)
        if value is not None:
            check_identifier(name, value)
    check_labels(wanted.labels)
    for name in ("created_after_ms", "created_before_ms", "active_after_ms", "active_before_ms"):
        moment = getattr(wanted, name)
        if moment is not None:
            check_integer(name, moment)
    encode(wanted, SessionFilter, "filter")
    return wanted


def ids_of(prefix: object) -> IdRange | None:
    """Return the ids that begin with a text; None without one, or raise InvalidInput."""
    if prefix is None or not check_text("prefix", prefix, limit=MAX_IDENTIFIER_LENGTH):
        return None
    return IdRange(str(prefix), prefix_end(str(prefix)))


def decode_page(
    page: PreparedPage, rows: Sequence[PageRow], components: Mapping[int, Sequence[ComponentRow]]
) -> SessionPage:
    """Return the page; ``components`` are those of the heads, by session key."""
    shown = rows[: page.limit - 1]
    return SessionPage(
        sessions=tuple(_summary(page, row, components.get(row.session_key, ())) for row in shown),
        next_cursor=encode_cursor(page, shown[-1]) if len(rows) == page.limit else None,
    )


def encode_cursor(page: PreparedPage, last: MetaRow) -> str:
    """Return the opaque cursor that continues the list after this session."""
    if page.order is SessionOrder.CREATED and not page.oldest_first:
        return base64.urlsafe_b64encode(b"s1:%d" % last.session_key).decode()
    at_ms = last.updated_at_ms if page.order is SessionOrder.ACTIVE else 0
    kind = _list_kind(page.order, oldest_first=page.oldest_first)
    return base64.urlsafe_b64encode(f"s2:{kind}:{at_ms}:{last.session_key}".encode()).decode()


def decode_cursor(cursor: str | None, order: SessionOrder, *, oldest_first: bool) -> PagePosition | None:
    """Return the position of a cursor of a list in this order, or raise InvalidInput."""
    if cursor is None:
        return None
    kind = _list_kind(order, oldest_first=oldest_first)
    try:
        match base64.urlsafe_b64decode(check_identifier("cursor", cursor)).decode().split(":"):
            case ["s1", key] if kind == "cn":
                return PagePosition(0, check_integer("cursor", int(key), at_least=0))
            case ["s2", found, at_ms, key] if found == kind != "cn":
                return PagePosition(check_integer("cursor", int(at_ms)), check_integer("cursor", int(key), at_least=0))
    except (binascii.Error, ValueError):
        pass
    raise InvalidInput(f"expected a cursor of a list of sessions in this order, got {cursor!r:.80}")


def _list_kind(order: SessionOrder, *, oldest_first: bool) -> str:
    """Return which order a cursor belongs to, in two letters."""
    return order.value[0] + ("o" if oldest_first else "n")


def _way(wanted: SessionFilter, order: SessionOrder, *, oldest_first: bool) -> str:
    """Return which index the list is read by: that of the most selective part of the filter."""
    end = "oldest" if oldest_first else "newest"
    if wanted.text is not None:
        return "search"
    if wanted.source_session_id is not None:
        return "source"
    if wanted.owner is not None or wanted.labels:
        return f"label_{end}" if order is SessionOrder.CREATED else "label_active"
    if wanted.state in _FEW:
        return "state"
    if wanted.prefix:
        return "prefix"
    if order is SessionOrder.ACTIVE:
        return f"active_{end}"
    return f"agent_{end}" if wanted.agent is not None else end


def _summary(page: PreparedPage, row: PageRow, components: Sequence[ComponentRow]) -> SessionSummary:
    parts = page.parts
    return SessionSummary(
        meta=decode_meta(row),
        revision=row.revision,
        first_user_message=row.first_user_message,
        user_message_count=row.user_message_count,
        updated_at_ms=row.updated_at_ms,
        agent=row.agent,
        state=_STATES.get(row.state) if parts.state else None,
        waiting_for=row.waiting_for if parts.state else None,
        counts=_counts(row) if parts.counts else None,
        head=decode_head(row) if parts.head else None,
        checkpoint=_checkpoint(row, components) if parts.checkpoint else None,
    )


def _counts(row: PageRow) -> SessionCounts:
    return SessionCounts(queued=row.queued or 0, dead=row.dead or 0, waits=row.waits or 0)


def _checkpoint(row: PageRow, components: Sequence[ComponentRow]) -> Checkpoint | None:
    if row.checkpoint_ref is None:
        return None
    if row.turn_state is None:
        raise CorruptData(f"session {row.session_id!r} has no checkpoint for its revision {row.revision}")
    saved = CheckpointRow(row.revision, row.checkpoint_ref, row.turn_state, row.plugin_snapshot_revision)
    return decode_checkpoint(saved, components)
