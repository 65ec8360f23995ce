"""The registration of a rerun."""

from __future__ import annotations

import pytest

from lash.errors import InvalidInput
from lash.model.causal import ProcessCause
from lash.model.process.process import AgentScope, ExternalInput, Provenance, Recovery, SessionOriginator
from lash.runtime.processes.rerun import rerun_registration
from tests.factories.process import process


def test_a_rerun_has_the_input_and_no_parent() -> None:
    """It keeps what the process does and for which session, and names the process that it repeats."""
    originator = SessionOriginator(scope=AgentScope(session_id="s"))
    parent = Provenance(originator=originator, caused_by=ProcessCause(process_id="parent"))
    first = process("p", provenance=parent, wake_session_id="s")
    again = rerun_registration(first, "q")
    assert again == process("q", provenance=Provenance(originator=originator, rerun_of="p"), wake_session_id="s")


def test_what_cannot_run_again_is_refused() -> None:
    """An external process has no worker, and an id names one process."""
    with pytest.raises(InvalidInput, match="external"):
        rerun_registration(process("p", input=ExternalInput(), recovery=Recovery.EXTERNAL), "q")
    with pytest.raises(InvalidInput, match="another id"):
        rerun_registration(process("p"), "p")
