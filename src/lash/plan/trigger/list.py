"""Lists of trigger subscriptions: filters, pages and cursors."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

import msgspec

from lash.base.codec import encode
from lash.base.limits import check_identifier, check_integer
from lash.errors import CorruptData, InvalidInput
from lash.model.trigger.trigger import TriggerFilter, TriggerPage, TriggerSubscription
from lash.plan.process.process import NO_DEFINITION, definition_hash
from lash.plan.trigger.trigger import TriggerRow, decode_subscription, owner_column


class TriggerColumns(msgspec.Struct, frozen=True, kw_only=True):
    """The columns by which a list is filtered; None does not filter."""

    definition_hash: str | None
    owner_session_id: str | None
    key: str | None
    source_type: str | None
    source_key: str | None
    enabled: bool | None


def check_trigger_filter(wanted: object) -> TriggerColumns:
    """Return the columns of a filter, or raise InvalidInput."""
    if not isinstance(wanted, TriggerFilter):
        raise InvalidInput(f"expected a TriggerFilter, got {type(wanted).__name__}")
    owner = None if wanted.owner is None else owner_column(wanted.owner)
    if wanted.enabled is not None and not isinstance(wanted.enabled, bool):
        raise InvalidInput(f"enabled: expected true, false or None, got {wanted.enabled!r:.80}")
    for name in ("session_id", "key", "source_type", "source_key"):
        text = getattr(wanted, name)
        if text is not None:
            check_identifier(name, text)
    encode(wanted, TriggerFilter, "filter")
    if owner is not None and wanted.session_id not in (None, owner):
        raise InvalidInput(f"owner and session_id {wanted.session_id!r} are two different owners")
    return TriggerColumns(
        definition_hash=_definition_column(wanted),
        owner_session_id=wanted.session_id if owner is None else owner,
        key=wanted.key,
        source_type=wanted.source_type,
        source_key=wanted.source_key,
        enabled=wanted.enabled,
    )


def _definition_column(wanted: TriggerFilter) -> str | None:
    """Return the hash to filter by. A filter for "no definition" differs from no filter."""
    if isinstance(wanted.definition, msgspec.UnsetType):
        return None
    return definition_hash(wanted.definition) or NO_DEFINITION


def decode_trigger_page(rows: Sequence[TriggerRow], limit: int) -> TriggerPage:
    """Return the page. One row more than the limit means that there is a next page.

    Unreadable subscriptions are listed by id in ``damaged``.
    """
    shown = rows[:limit]
    subscriptions: list[TriggerSubscription] = []
    damaged: list[str] = []
    for row in shown:
        try:
            subscriptions.append(decode_subscription(row))
        except CorruptData:
            damaged.append(row.subscription_id)
    return TriggerPage(
        subscriptions=tuple(subscriptions),
        damaged=tuple(damaged),
        next_cursor=_encode_cursor(shown[-1].subscription_key) if len(rows) > limit else None,
    )


def decode_trigger_cursor(cursor: str | None) -> int | None:
    """Return the subscription key after which a page starts, or raise InvalidInput."""
    if cursor is None:
        return None
    try:
        version, _, digits = base64.urlsafe_b64decode(check_identifier("cursor", cursor)).partition(b":")
        if version == b"t1":
            return check_integer("cursor", int(digits), at_least=0)
    except (binascii.Error, ValueError):
        pass
    raise InvalidInput(f"expected a cursor of a list of trigger subscriptions, got {cursor!r:.80}")


def _encode_cursor(subscription_key: int) -> str:
    return base64.urlsafe_b64encode(b"t1:%d" % subscription_key).decode()
