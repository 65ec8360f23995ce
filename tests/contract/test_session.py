"""The public contract of sessions on our own backends."""

from __future__ import annotations

from lash.testing.contract.checkpoint import CheckpointContract
from lash.testing.contract.session_commit import SessionCommitContract
from lash.testing.contract.session_graph import SessionGraphContract
from lash.testing.contract.session_list import SessionListContract
from lash.testing.contract.session_read import SessionReadContract
from lash.testing.contract.session_store import SessionStoreContract
from lash.testing.contract.session_turn import SessionTurnContract


class TestSessionStore(SessionStoreContract):
    """On each backend."""


class TestSessionCommit(SessionCommitContract):
    """On each backend."""


class TestSessionTurn(SessionTurnContract):
    """On each backend."""


class TestSessionGraph(SessionGraphContract):
    """On each backend."""


class TestSessionRead(SessionReadContract):
    """On each backend."""


class TestSessionList(SessionListContract):
    """On each backend."""


class TestCheckpoint(CheckpointContract):
    """On each backend."""
