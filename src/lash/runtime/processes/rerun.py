"""Reruns: a process that was registered before, once more under another id."""

from __future__ import annotations

from msgspec.structs import replace

from lash.errors import InvalidInput
from lash.model.process.process import Provenance, Recovery, Registration


def rerun_registration(registration: Registration, process_id: str) -> Registration:
    """Return the registration of a rerun, or raise InvalidInput if no worker runs the process or the id is the same.

    A rerun has the input, the session and the woken session of the first process, but not its parent: a parent knows
    its children by their ids.
    """
    if registration.recovery is Recovery.EXTERNAL:
        raise InvalidInput(f"process {registration.process_id!r} is external; only what workers run can be run again")
    if process_id == registration.process_id:
        raise InvalidInput(f"expected another id than {process_id!r} for a rerun; a process is run once under its id")
    provenance = Provenance(originator=registration.provenance.originator, rerun_of=registration.process_id)
    return replace(registration, process_id=process_id, provenance=provenance)
