"""Registering a process and claiming it in one statement, on PostgreSQL."""

from __future__ import annotations

import msgspec

from lash.base.codec import encode
from lash.base.limits import saturating_add
from lash.model.lease import Lease, LeaseOwner, LocalProcess, process_resource
from lash.model.process.process import ProcessAcquired, ProcessRecord, Projection
from lash.plan.process.event import encode_projection
from lash.plan.process.event_draft import started_draft
from lash.plan.process.process import EncodedRegistration
from lash.postgres.cache import ProcessCache
from lash.postgres.engine.database import Database
from lash.postgres.rows.process.append import plan_insert
from lash.postgres.rows.process.process import registration_arguments
from lash.postgres.rows.process.rows import BeginAnswer


async def begin(
    database: Database, seen: ProcessCache, encoded: EncodedRegistration, owner: LeaseOwner, token: str, ttl_ms: int
) -> ProcessAcquired | None:
    """Register a process that workers run and take its lease under the token; None if its id is taken."""
    record = _new_record(encoded)
    started = plan_insert(record, 0, started_draft(record.process_id, owner))
    event, process = started.event, owner.process
    answer = await database.write_one(
        BeginAnswer,
        "process_begin",
        *registration_arguments(encoded, encode_projection(started.projection), event.sequence),
        *(owner.owner_id, owner.incarnation_id),
        *(None if process is None else encode(process, LocalProcess, "owner.process"), token, ttl_ms),
        *(event.event_type, event.replay_key, started.payload_hash, started.payload),
        repeatable=True,
    )
    if answer is None:
        return None
    seen.remember(answer.process)
    now_ms = answer.process.created_at_ms
    begun = msgspec.structs.replace(
        record,
        projection=started.projection,
        last_sequence=event.sequence,
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
    )
    lease = Lease(
        resource=process_resource(record.process_id),
        owner=owner,
        token=token,
        fencing=answer.fencing,
        claimed_at_ms=now_ms,
        expires_at_ms=saturating_add(now_ms, ttl_ms),
    )
    return ProcessAcquired(lease=lease, record=begun, wake_seq=0, has_effects=False)


def _new_record(encoded: EncodedRegistration) -> ProcessRecord:
    """Return the record of a process that is about to be registered; when that is, the server says."""
    return ProcessRecord(
        process_id=encoded.registration.process_id,
        registration_hash=encoded.registration_hash,
        registration=encoded.registration,
        projection=Projection(),
        wake_session_id=encoded.registration.wake_session_id,
        last_sequence=0,
        created_at_ms=0,
        updated_at_ms=0,
    )
