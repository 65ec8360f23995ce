from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import pydoc
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Self, assert_type

import pytest

import lash
from lash.base.portal import Portal
from lash.model.activity import Observed
from lash.model.session.created import CreatedSession
from lash.sync.interfaces import INTERFACES
from lash.sync.proxy import Blocking, derive
from lash.sync.stream import Stream

PATIENCE_S = 20.0


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name in ("lash-storage", "lash-app", "lash-test")]


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def run_script(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(text), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S * 3, check=False)


@pytest.fixture
def portal() -> Iterator[Portal]:
    given = Portal("lash-test")
    given.open()
    yield given
    given.close()


def test_a_storage_is_used_without_await(backend_url: str) -> None:
    """Calls return plain values on every backend, with the right types."""
    with lash.sync.open(backend_url) as storage:
        assert_type(storage, lash.sync.Storage)
        created = storage.sessions.create("x", name="a name")
        assert_type(created, CreatedSession)
        assert (created.created, created.meta.name) == (True, "a name")
        handle = storage.session("x")
        assert_type(handle, lash.sync.Session)
        assert handle.session_id == "x"
        assert handle.head() is None
        assert [summary.meta.session_id for summary in storage.sessions.list().sessions] == ["x"]
        opened = storage.sessions.open("x")
        assert opened is not None
        assert opened.meta().name == "a name"
        assert storage.sessions.open("y") is None
        assert storage.sessions.delete("x")


def test_closing_ends_the_thread_and_can_be_repeated(backend_url: str) -> None:
    """One thread runs while the storage is open; after closing, every call raises StorageClosed."""
    storage = lash.sync.open(backend_url)
    assert len(loop_threads()) == 1
    storage.close()
    storage.close()
    assert loop_threads() == []
    with pytest.raises(lash.StorageClosed):
        storage.sessions.create("x")
    with pytest.raises(lash.StorageClosed):
        storage.session("x").head()


def test_what_cannot_be_opened_leaves_no_thread() -> None:
    """The caller gets the error, and no thread is left."""
    with pytest.raises(lash.ConfigError, match="unknown URL scheme"):
        lash.sync.open("mysql://host")
    with pytest.raises(TypeError):
        lash.sync.open("sqlite://", wrong=True)  # type: ignore[call-arg]
    app = lash.sync.App("mysql://host")
    with pytest.raises(lash.ConfigError, match="unknown URL scheme"):
        app.open()
    assert loop_threads() == []


def test_an_application_answers(backend_url: str) -> None:
    """Agents and processes are async functions; sending, asking, starting and waiting block."""
    app = lash.sync.App(backend_url)

    @app.agent
    async def echo(turn: lash.Turn) -> str:
        return f"you said {turn.text}"

    @app.process
    async def add(ctx: lash.Context, left: int, right: int) -> int:
        return left + right

    with app:
        conversation = app.session("c", echo)
        assert_type(conversation, lash.sync.SessionHandle)
        assert conversation.ask("hi", timeout_s=PATIENCE_S) == "you said hi"
        assert [lash.text_of(message) for message in conversation.messages()] == ["hi", "you said hi"]
        started = app.start(add, 1, right=2)
        assert_type(started, lash.sync.ProcessHandle[int])
        assert_type(started.result(timeout_s=PATIENCE_S), int)
        assert started.result() == 3
        assert started.status() is lash.ProcessStatus.COMPLETED
        again = app.starting(process_id="p").start(add, 3, 4)
        assert (again.process_id, again.result(timeout_s=PATIENCE_S)) == ("p", 7)
        assert app.handle("p").record().process_id == "p"
        assert [each.meta.session_id for each in app.storage.sessions.list().sessions] == ["c"]
    assert loop_threads() == []


def test_a_session_is_observed_with_a_plain_loop(backend_url: str) -> None:
    """The stream is an iterator; leaving it early ends it, and another continues from a cursor."""
    app = lash.sync.App(backend_url)

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        turn.activity("thinking")
        return "hello"

    with app:
        conversation = app.session("c")
        cursor = conversation.cursor()
        conversation.ask("hi", timeout_s=PATIENCE_S)
        with conversation.observe(cursor) as stream:
            assert_type(stream, Stream[Observed])
            shown = next(each for each in stream if isinstance(each, lash.TurnActivity))
        assert shown.payload == "thinking"
        # An iterator that is never closed does no harm.
        committed = next(each for each in conversation.observe(shown.cursor) if isinstance(each, lash.Committed))
        assert committed.revision == 1
        with pytest.raises(lash.InvalidInput):
            conversation.observe("nonsense")


def test_an_application_can_be_opened_again() -> None:
    """Open, stop and open again; in between, a call raises an error that names the remedy."""
    app = lash.sync.App("sqlite://", worker=False)
    with pytest.raises(lash.ConfigError, match="with app"):
        app.drain()
    for _ in range(2):
        app.open()
        app.open()
        assert app.drain() == 0
        app.stop()
        app.stop()
    with pytest.raises(lash.ConfigError, match="not open"):
        app.session("x")


async def test_it_works_where_a_loop_is_running() -> None:
    """The facade has a loop of its own, so it works inside a running loop, as in a notebook."""
    assert asyncio.get_running_loop().is_running()
    with lash.sync.open("sqlite://") as storage:
        assert storage.sessions.create("x").created


def test_threads_share_it(backend_url: str) -> None:
    """Eight threads use one storage concurrently, and nothing is lost or mixed up."""
    answers: dict[str, str] = {}
    with lash.sync.open(backend_url) as storage:

        def work(number: int) -> None:
            for index in range(10):
                name = f"{number}/{index}"
                storage.sessions.create(name, name=name)
                answers[name] = storage.session(name).meta().name or ""

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(storage.sessions.list().sessions) == 80
    assert answers == {f"{number}/{index}": f"{number}/{index}" for number in range(8) for index in range(10)}


def test_a_call_from_inside_its_own_loop_is_refused() -> None:
    """An agent that would block its own loop gets a clear error; a step's thread may call."""
    app = lash.sync.App("sqlite://")

    def count_sessions() -> int:
        return len(app.storage.sessions.list().sessions)

    @app.agent(retry=lash.Retry(max_attempts=1))
    async def curious(turn: lash.Turn) -> str:
        if turn.text == "in a step":
            return str(await turn.step(count_sessions))
        if turn.text == "stop":
            app.stop()
        return str(count_sessions())

    with app:
        conversation = app.session("c")
        with pytest.raises(lash.TurnFailed, match="would block the event loop"):
            conversation.ask("directly", timeout_s=PATIENCE_S)
        with pytest.raises(lash.TurnFailed, match="would block the event loop"):
            conversation.ask("stop", timeout_s=PATIENCE_S)
        assert conversation.ask("in a step", timeout_s=PATIENCE_S) == "1"


def test_errors_are_the_same_ones_with_both_sides_in_the_traceback() -> None:
    """An error keeps its class and fields; its traceback leads from the caller to the raise."""
    with lash.sync.open("sqlite://") as storage, pytest.raises(lash.SessionNotFound) as caught:
        storage.session("unknown").meta()
    assert caught.value.session_id == "unknown"
    files = [Path(frame.filename).name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert files[0] == Path(__file__).name
    assert files[-1] == "lookup.py"


def test_a_wait_in_another_thread_ends_when_the_storage_is_closed() -> None:
    """A thread that waits while another closes the storage gets StorageClosed, and does not hang."""
    storage = lash.sync.open("sqlite://")
    storage.sessions.create("x")
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            with storage.hints.listen() as hints:
                while True:
                    hints.wait(60)
        except BaseException as error:  # noqa: BLE001 (it is what the test looks at)
            caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    portal: Portal = getattr(storage, "_portal")  # noqa: B009 (the types do not show it)
    # The tasks of the loop itself, of this call, and of the waiting call.
    eventually(lambda: portal.call(lambda: len(asyncio.all_tasks())) == 3)
    storage.close()
    thread.join(PATIENCE_S)
    assert [type(error) for error in caught] == [lash.StorageClosed]


def test_an_interrupt_cancels_the_call(portal: Portal) -> None:
    """Ctrl-C is raised in the caller after the call was cancelled in the loop; the facade stays usable."""
    seen: list[str] = []

    async def wait_for_ever() -> None:
        # Send the signal once the call runs.
        main = threading.main_thread().ident or 0
        asyncio.get_running_loop().call_later(0.05, signal.pthread_kill, main, signal.SIGINT)
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    with pytest.raises(KeyboardInterrupt):
        portal.call(wait_for_ever)
    assert seen == ["cancelled"]
    assert portal.call(lambda: 1) == 1


def test_ctrl_c_ends_a_script(tmp_path: Path) -> None:
    """A script that waits for a reply exits at the first Ctrl-C, without a leftover thread."""
    script = """
        import os, signal, sys, threading
        import lash.sync
        app = lash.sync.App(sys.argv[1], worker=False)
        try:
            with app:
                threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
                app.session("c").ask("hello?")
        except KeyboardInterrupt:
            print("interrupted", [thread.name for thread in threading.enumerate() if thread.name == "lash-app"])
            raise
    """
    finished = run_script(script, f"sqlite:///{tmp_path / 'lash.db'}")
    assert finished.stdout == "interrupted []\n"
    assert finished.returncode == -signal.SIGINT
    assert finished.stderr.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.parametrize("kept", ["kept", "forgotten"])
def test_a_script_that_never_closes_ends_all_the_same(tmp_path: Path, kept: str) -> None:
    """Neither an open storage nor an open app keeps the interpreter alive; both are closed at exit."""
    script = """
        import sys
        import lash.sync
        storage = lash.sync.open(sys.argv[1])
        storage.sessions.create("x")
        app = lash.sync.App(sys.argv[1])
        app.open()
        if sys.argv[2] == "forgotten":
            del storage, app
        print("end")
    """
    finished = run_script(script, f"sqlite:///{tmp_path / 'lash.db'}", kept)
    assert (finished.stdout, finished.stderr, finished.returncode) == ("end\n", "", 0)
    # The last connection to close checkpoints the WAL and removes it.
    assert not (tmp_path / "lash.db-wal").exists()


def test_a_forked_child_is_told(tmp_path: Path) -> None:
    """A fork does not have the thread: a child that uses the storage gets ConfigError and does not hang."""
    script = """
        import os, sys
        import lash.sync
        storage = lash.sync.open(sys.argv[1])
        if os.fork():
            os.wait()
        else:
            try:
                storage.sessions.create("x")
            except lash.ConfigError as error:
                print(error)
    """
    finished = run_script(script, f"sqlite:///{tmp_path / 'lash.db'}")
    assert "before the process forked" in finished.stdout
    assert finished.returncode == 0


def test_what_is_forgotten_is_closed() -> None:
    """A storage that is no longer referenced, as after rebinding in a notebook, is closed automatically."""
    storage = lash.sync.open("sqlite://")
    storage.sessions.create("x")
    (thread,) = loop_threads()
    del storage
    gc.collect()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def sleeping(portal: Portal, errors: list[BaseException]) -> Callable[[], None]:
    """Return a call that sleeps for long and keeps the error that ended it."""

    def wait() -> None:
        try:
            portal.call(asyncio.sleep, 3_600)
        except BaseException as error:  # noqa: BLE001 (it is what the tests look at)
            errors.append(error)

    return wait


def test_a_handler_that_ends_the_program_leaves_nobody_waiting(portal: Portal) -> None:
    """SystemExit in the loop ends the thread: its caller gets it, and other callers get an error."""
    others: list[BaseException] = []
    wait = sleeping(portal, others)

    async def leave() -> None:
        await asyncio.sleep(0.05)
        sys.exit(3)

    thread = threading.Thread(target=wait)
    thread.start()
    with pytest.raises(SystemExit):
        portal.call(leave)
    thread.join(PATIENCE_S)
    assert len(others) == 1
    with pytest.raises(lash.StorageClosed):
        eventually(lambda: portal.call(lambda: False))


def test_a_call_that_came_too_late_leaves_nothing(portal: Portal, caplog: pytest.LogCaptureFixture) -> None:
    """The call raises, and leaves no pending task for the garbage collector to warn about."""
    others: list[BaseException] = []
    wait = sleeping(portal, others)

    thread = threading.Thread(target=wait)

    async def leave() -> None:
        thread.start()
        # Block the loop, so that the call is sent and cannot start.
        time.sleep(0.2)  # noqa: ASYNC251
        sys.exit(3)

    with pytest.raises(SystemExit):
        portal.call(leave)
    thread.join(PATIENCE_S)
    assert [type(each) for each in others] == [lash.StorageClosed]
    eventually(lambda: not loop_threads())
    gc.collect()
    assert caplog.messages == []


def test_the_callers_context_variables_are_seen(portal: Portal) -> None:
    """A span or a request id of the caller is current in the call."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    variable.set("the caller's")

    async def read() -> str:
        return variable.get()

    assert portal.call(read) == "the caller's"


class Counting:
    """Counts asynchronously."""

    def __init__(self) -> None:
        self.ended: list[int] = []
        self.limit = 3

    def count(self, to: int) -> AsyncIterator[int]:
        """Count up."""
        return self._count(to)

    async def fail_at(self, number: int) -> AsyncIterator[int]:
        yield number
        raise lash.InvalidInput("no further")

    async def __aenter__(self) -> Self:
        self.ended.append(0)
        return self

    async def __aexit__(self, *_error: object) -> None:
        self.ended.append(-1)

    async def _count(self, to: int) -> AsyncIterator[int]:
        try:
            for number in range(1, to + 1):
                await asyncio.sleep(0)
                yield number
        finally:
            self.ended.append(to)


def test_async_iterators_are_iterators(portal: Portal) -> None:
    """They yield the same values and errors; closing one early ends it at once; async with is with."""
    target = Counting()
    counting = derive(Counting)(portal, target)
    with counting as same:  # type: ignore[attr-defined]
        assert same is counting
        assert list(counting.count(3)) == [1, 2, 3]
        with counting.count(100) as stream:
            assert isinstance(stream, Stream)
            assert [next(stream), next(stream)] == [1, 2]
        assert list(stream) == []
        failing = counting.fail_at(7)
        assert next(failing) == 7
        with pytest.raises(lash.InvalidInput, match="no further"):
            next(failing)
    assert target.ended == [0, 3, 100, -1]
    assert (counting.limit, "limit" in dir(counting), "count" in dir(counting)) == (3, True, True)
    for hidden in ("_count", "nothing"):
        with pytest.raises(AttributeError, match=hidden):
            getattr(counting, hidden)


@pytest.mark.parametrize("name", sorted(INTERFACES))
def test_every_public_method_is_there_and_blocks(name: str) -> None:
    """Each blocking class has exactly the public names of its async class, none async, each with its docstring."""
    kind = getattr(lash.sync, name)
    source = getattr(sys.modules[INTERFACES[name]], name)
    wanted = {each for each in dir(source) if not each.startswith("_")}
    assert {each for each in dir(kind) if not each.startswith("_")} == wanted
    assert issubclass(kind, Blocking)
    for each in wanted:
        member, original = getattr(kind, each), getattr(source, each)
        assert not inspect.iscoroutinefunction(member)
        assert bool(member.__doc__) == bool(original.__doc__)
        assert "await " not in (member.__doc__ or "")
        if inspect.isfunction(member) and name != "App":
            assert inspect.signature(member) == inspect.signature(original)


def test_help_tells_what_the_async_class_tells() -> None:
    """help() of an object shows its methods with their arguments and docstrings."""
    with lash.sync.open("sqlite://") as storage:
        shown = pydoc.plain(pydoc.render_doc(storage.sessions))
    assert "create(self, session_id: 'str', *, name: 'str | None' = None" in shown
    assert "Create a session, or return the one that exists, unchanged." in shown
