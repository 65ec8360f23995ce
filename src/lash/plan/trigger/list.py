"""Lists of trigger subscriptions: what a filter asks for, and what a page shows."""

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


def check_trigger_filter(wanted: object) -> TriggerFilter:
    """Return the filter if it is one that a list can use."""
    if not isinstance(wanted, TriggerFilter):
        raise InvalidInput(f"a TriggerFilter is needed, not {type(wanted).__name__}")
    if wanted.owner is not None:
        owner_column(wanted.owner)
    if wanted.enabled is not None and not isinstance(wanted.enabled, bool):
        raise InvalidInput(f"enabled must be true, false or None, not {wanted.enabled!r:.80}")
    for name in ("session_id", "key", "source_type", "source_key"):
        text = getattr(wanted, name)
        if text is not None:
            check_identifier(name, text)
    encode(wanted, TriggerFilter, "filter")
    if wanted.owner is not None and wanted.session_id not in (None, owner_column(wanted.owner)):
        raise InvalidInput(f"owner and session_id {wanted.session_id!r} are two different owners")
    return wanted


def wanted_owner(wanted: TriggerFilter) -> str | None:
    """Return the owner that a filter asks for."""
    return wanted.session_id if wanted.owner is None else owner_column(wanted.owner)


def wanted_trigger_definition(wanted: TriggerFilter) -> str | None:
    """Return the hash of the definition that a filter asks for; no definition at all is asked for as such."""
    if isinstance(wanted.definition, msgspec.UnsetType):
        return None
    return definition_hash(wanted.definition) or NO_DEFINITION


def leading_trigger_filter(wanted: TriggerFilter) -> str:
    """Return the part of a filter that narrows most, by whose index a list is read; ``all`` if there is none."""
    leading = (
        ("key", wanted.key is not None),
        ("definition", not isinstance(wanted.definition, msgspec.UnsetType)),
        ("source", wanted.source_key is not None),
        ("owner", wanted_owner(wanted) is not None),
        ("type", wanted.source_type is not None),
        ("disabled", wanted.enabled is False),
    )
    return next((name for name, given in leading if given), "all")


def decode_trigger_page(rows: Sequence[TriggerRow], limit: int) -> TriggerPage:
    """Return the page; the rows hold one more than the limit when there is a next page.

    T11: a row that cannot be read is told by its id and keeps no other from being shown.
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
    """Return the place that a cursor means, or raise InvalidInput."""
    if cursor is None:
        return None
    try:
        version, _, digits = base64.urlsafe_b64decode(check_identifier("cursor", cursor)).partition(b":")
        if version == b"t1":
            return check_integer("cursor", int(digits), at_least=0)
    except (binascii.Error, ValueError):
        pass
    raise InvalidInput(f"{cursor!r:.80} is not a cursor of a list of trigger subscriptions")


def _encode_cursor(subscription_key: int) -> str:
    return base64.urlsafe_b64encode(b"t1:%d" % subscription_key).decode()
