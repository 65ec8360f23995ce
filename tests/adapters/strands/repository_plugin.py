"""A pytest plugin: the suites of Strands get the adapter wherever they ask for a repository of sessions."""

from __future__ import annotations

import tempfile
from typing import Any

import strands.session
import strands.session.file_session_manager
from strands.session.repository_session_manager import RepositorySessionManager
from suite_urls import url_of

import tests.fixtures.mock_session_repository
from lash.adapters.strands import LashSessionRepository

pytest_plugins = ["suite_urls"]


class MockedSessionRepository(LashSessionRepository):
    """The adapter in the place of the repository in memory, alone in its file."""

    def __init__(self) -> None:
        super().__init__(url_of(tempfile.mkdtemp()))


class FileSessionManager(RepositorySessionManager, LashSessionRepository):
    """The adapter with the arguments of Strands' own class, which is the manager and the repository."""

    def __init__(self, session_id: str, storage_dir: str | None = None, **kwargs: Any) -> None:  # noqa: ANN401
        LashSessionRepository.__init__(self, url_of(storage_dir or tempfile.mkdtemp()))
        RepositorySessionManager.__init__(self, session_id=session_id, session_repository=self)


tests.fixtures.mock_session_repository.MockedSessionRepository = MockedSessionRepository
strands.session.FileSessionManager = FileSessionManager
strands.session.file_session_manager.FileSessionManager = FileSessionManager
