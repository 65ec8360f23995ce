"""ADK's own runner with the adapter's services and a stand-in for the model."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from pathlib import Path

from google.adk.errors import StaleSessionError
from google.adk.runners import Runner
from google.genai import types

from lash.adapters.adk import LashArtifactService, LashSessionService
from tests.adapters.adk.counting import counting_agent

_ROOT = Path(__file__).resolve().parents[3]


def runner_on(url: str, marks: Path | None = None) -> Runner:
    return Runner(
        app_name="count",
        agent=counting_agent(marks),
        session_service=LashSessionService(url),
        artifact_service=LashArtifactService(url),
        auto_create_session=True,
    )


async def ask(runner: Runner, session_id: str, text: str) -> list[str]:
    message = types.Content(role="user", parts=[types.Part(text=text)])
    texts: list[str] = []
    async for event in runner.run_async(user_id="ann", session_id=session_id, new_message=message):
        parts = (event.content.parts if event.content else None) or []
        texts += [part.text for part in parts if part.text]
    return texts


async def test_a_run_stores_its_events_state_and_artifacts(url: str) -> None:
    """A tool changes all scopes and saves an artifact; the next run, of another runner, goes on from there."""
    assert await ask(runner_on(url), "s", "go") == ["count is 1"]
    assert await ask(runner_on(url), "s", "go") == ["count is 2"]
    assert await ask(runner_on(url), "t", "go") == ["count is 1"]
    service = LashSessionService(url)
    session = await service.get_session(app_name="count", user_id="ann", session_id="s")
    assert session is not None
    assert session.state == {"count": 2, "user:total": 3, "app:total": 3, "answer": "count is 2"}
    assert [event.author for event in session.events] == ["user", "counter", "counter", "counter"] * 2
    artifacts = LashArtifactService(url)
    assert await artifacts.list_versions(app_name="count", user_id="ann", session_id="s", filename="log") == [0, 1]
    assert [event.actions.artifact_delta for event in session.events if event.actions.artifact_delta] == [
        {"log": 0},
        {"log": 1},
    ]


async def test_a_session_can_be_rewound(url: str) -> None:
    """State and artifacts are those before the invocation."""
    runner = runner_on(url)
    await ask(runner, "s", "go")
    await ask(runner, "s", "go")
    service = LashSessionService(url)
    session = await service.get_session(app_name="count", user_id="ann", session_id="s")
    assert session is not None
    second = session.events[4].invocation_id
    await runner.rewind_async(user_id="ann", session_id="s", rewind_before_invocation_id=second)
    session = await service.get_session(app_name="count", user_id="ann", session_id="s")
    assert session is not None
    assert session.state["count"] == 1
    log = await LashArtifactService(url).load_artifact(app_name="count", user_id="ann", session_id="s", filename="log")
    assert log == types.Part(text="1")


async def test_eight_concurrent_runs_leave_a_history_that_goes_on(url: str) -> None:
    """A run that is overtaken gets StaleSessionError. Each run that answers is stored whole, and so is the next one."""
    await ask(runner_on(url), "s", "before")
    outcomes = await asyncio.gather(
        *(ask(runner_on(url), "s", f"run {number}") for number in range(8)), return_exceptions=True
    )
    answered = [number for number, outcome in enumerate(outcomes) if isinstance(outcome, list)]
    assert answered
    refused = [outcome for outcome in outcomes if not isinstance(outcome, list)]
    assert [type(each) for each in refused] == [StaleSessionError] * len(refused)
    session = await LashSessionService(url).get_session(app_name="count", user_id="ann", session_id="s")
    assert session is not None
    runs = [list(events) for _, events in itertools.groupby(session.events, key=lambda event: event.invocation_id)]
    texts = {events[0].content.parts[0].text: len(events) for events in runs}
    assert {texts[f"run {number}"] for number in answered} == {4}
    assert await ask(runner_on(url), "s", "after") == [f"count is {len(answered) + 2}"]


_RUN = """
import asyncio, sys
from pathlib import Path
from tests.adapters.adk.test_runner import ask, runner_on
asyncio.run(ask(runner_on(sys.argv[1], Path(sys.argv[2])), "s", "go"))
"""


async def test_a_run_whose_process_is_killed_leaves_a_session_that_goes_on(url: str, tmp_path: Path) -> None:
    """The stored events are whole, with the state of each, and the next run in another process answers."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(_ROOT), *sys.path])}
    command = [sys.executable, "-c", _RUN, url, str(tmp_path)]
    with subprocess.Popen(command, env=environment, cwd=_ROOT) as first:  # noqa: ASYNC220 (starting it takes no time)
        while not (tmp_path / "in-tool").exists():
            assert first.poll() is None
            await asyncio.sleep(0.05)
        first.send_signal(signal.SIGKILL)
    service = LashSessionService(url)
    session = await service.get_session(app_name="count", user_id="ann", session_id="s")
    assert session is not None
    assert [event.author for event in session.events] == ["user", "counter"]
    assert session.state == {}
    assert await ask(runner_on(url), "s", "again") == ["count is 1"]
