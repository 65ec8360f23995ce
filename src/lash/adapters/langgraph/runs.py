"""The records of a checkpoint: its own, and those by which the checkpoints of a run are found."""

from __future__ import annotations

from collections.abc import Iterator

from lash.adapters.langgraph import codec
from lash.adapters.langgraph.codec import Place, StoredCheckpoint
from lash.model.record import RecordPut


def checkpoint_records(
    place: Place, stored: StoredCheckpoint, run_id: object, known_runs: set[str]
) -> Iterator[RecordPut]:
    """Return the record of a checkpoint. The first checkpoint of a run in the thread also adds those of the run."""
    index = {"namespace": codec.namespace_key(place.namespace)}
    if run_id is not None:
        run = codec.run_key(str(run_id))
        index["run"] = run
        if run not in known_runs:
            known_runs.add(run)
            yield from run_records(place, run)
    yield RecordPut(
        collection=codec.CHECKPOINTS,
        key=codec.key_of(stored),
        value=codec.encode_checkpoint(stored),
        session_id=place.session_id,
        index=index,
    )


def run_records(place: Place, run: str) -> Iterator[RecordPut]:
    """Return the records that lead from a run to a thread, and from the thread to its runs."""
    yield RecordPut(collection=codec.RUNS, key=f"{run}/{place.session_id}", value=place.thread_id)
    yield RecordPut(collection=codec.RUNS, key=run, value=None, session_id=place.session_id)
