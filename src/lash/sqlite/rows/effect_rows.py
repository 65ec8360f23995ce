"""What is read of effects on SQLite."""

from __future__ import annotations

from lash.model.effect import EffectGroup, ExecutionScope
from lash.plan.effect.claim import EffectFacts, EffectRow, GroupRow, decode_group
from lash.plan.effect.effect import EncodedEffect
from lash.plan.effect.scope import scope_id, scope_process_id, scope_session_id
from lash.plan.lease import LeaseRow
from lash.sqlite.engine.database import Reader, SQLiteValue
from lash.sqlite.rows.lease import lease_row
from lash.sqlite.rows.process.event import find_process, process_lease_row
from lash.sqlite.rows.session.lookup import find_session_key
from lash.sqlkit.rows import Text


def load_facts(reader: Reader, encoded: EncodedEffect) -> EffectFacts:
    """Return what a plan must know about an effect, or raise that its session or process is not there."""
    return EffectFacts(
        now_ms=reader.now_ms,
        lease=_lease(reader, encoded.envelope.scope),
        group=None if encoded.group_key is None else group_row(reader, encoded.scope_id, encoded.group_key),
        row=effect_row(reader, encoded.scope_id, encoded.replay_key),
    )


def _lease(reader: Reader, scope: ExecutionScope) -> LeaseRow | None:
    session_id, process_id = scope_session_id(scope), scope_process_id(scope)
    if session_id is not None:
        return lease_row(reader, session_id)
    return None if process_id is None else process_lease_row(reader, find_process(reader, process_id).process_key)


def owner_keys(reader: Reader, scope: ExecutionScope) -> dict[str, SQLiteValue]:
    """Return the keys of the session or process of a scope, or raise that it is not there."""
    session_id, process_id = scope_session_id(scope), scope_process_id(scope)
    if process_id is not None:
        return {"session_key": None, "process_key": find_process(reader, process_id).process_key}
    if session_id is None:
        return {"session_key": None, "process_key": None}
    return {"session_key": find_session_key(reader, session_id), "process_key": None}


def effect_row(reader: Reader, scope: str, replay_key: str) -> EffectRow | None:
    """Return one stored effect."""
    return reader.one(EffectRow, "effect_row", scope_id=scope, replay_key=replay_key)


def group_row(reader: Reader, scope: str, group_key: str) -> GroupRow | None:
    """Return one stored group."""
    return reader.one(GroupRow, "effect_group", scope_id=scope, group_key=group_key)


def load_group(reader: Reader, scope: ExecutionScope, group_key: str) -> EffectGroup | None:
    """Return a group with what has settled."""
    name = scope_id(scope)
    row = group_row(reader, name, group_key)
    if row is None:
        return None
    settled = reader.all(Text, "effect_settled", scope_id=name, group_key=group_key)
    return decode_group(scope, group_key, row, [each.text for each in settled])
