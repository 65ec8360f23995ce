"""One storage per process and URL, called from any event loop and any thread."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import subprocess
import sys
import textwrap
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, assert_type

import pytest
import trio

import lash
import lash.stores
from lash.base import in_place
from lash.connect.any_loop import any_loop_class, session_class, storage_class
from lash.connect.link import LazyStorage
from lash.connect.open import OpenOptions, open_storage
from lash.connect.shared import shared_link
from lash.model.session.created import CreatedSession
from lash.stores.session import Session
from lash.stores.waiter import ObserverWatch, ReplyWatch, SessionWaiter
from tests.factories.process import external
from tests.runtime.worker_kit import until

PATIENCE_S = 20.0
MEMORY = "sqlite://"


@pytest.fixture
def url(backend_url: str) -> Iterator[str]:
    """The URL of an empty storage, whose shared storage is closed after the test."""
    yield backend_url
    lash.sync.shared(backend_url).close()


@pytest.fixture
def memory() -> Iterator[str]:
    """The URL of an empty storage in memory, for what does not depend on the backend."""
    yield MEMORY
    lash.sync.shared(MEMORY).close()


@pytest.fixture(autouse=True)
def other_threads() -> Iterator[None]:
    """Shared storages that other tests left open, as a page of the documentation does, do not count."""
    _others.update(threading.enumerate())
    yield
    _others.clear()


_others: set[threading.Thread] = set()


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "lash-shared" and thread not in _others]


def run_script(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Python 3.12 and newer warn of a fork beside threads.
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", textwrap.dedent(text), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S * 3, check=False)


def test_every_event_loop_and_every_thread_uses_one_storage(url: str) -> None:
    """Loops one after another, loops at the same time in threads, and plain threads write to the same storage."""
    storage = lash.shared(url)
    assert_type(storage, lash.Storage)
    assert_type(lash.sync.shared(url), lash.sync.Storage)

    async def create(name: str) -> CreatedSession:
        created = await storage.sessions.create(name)
        assert_type(created, CreatedSession)
        assert await storage.session(name).revision() == 0
        return created

    for name in ("first", "second"):
        assert asyncio.run(create(name)).created
    with ThreadPoolExecutor(8) as pool:
        in_loops = [pool.submit(asyncio.run, create(f"loop {number}")) for number in range(4)]
        plain = [pool.submit(lash.sync.shared(url).sessions.create, f"thread {number}") for number in range(4)]
        assert all(future.result().created for future in (*in_loops, *plain))
    found = {each.meta.session_id for each in lash.sync.shared(url).sessions.list().sessions}
    assert found == {"first", "second", *(f"{kind} {number}" for kind in ("loop", "thread") for number in range(4))}
    assert len(loop_threads()) == 1


def test_nothing_is_opened_before_the_first_call(tmp_path: Path) -> None:
    """Constructing a storage, its stores and sessions starts no thread, and creates no file."""
    storage = lash.shared(f"sqlite:///{tmp_path / 'a.db'}")
    assert storage.session("x").session_id == "x"
    assert storage.sessions is not None
    assert lash.sync.shared(f"sqlite:///{tmp_path / 'a.db'}").session("y").session_id == "y"
    assert (loop_threads(), list(tmp_path.iterdir())) == ([], [])


def test_threads_that_open_at_once_share_the_opening(memory: str) -> None:
    """Eight first calls at the same moment get one storage: in memory, each would see only its own session if not."""
    start = threading.Barrier(8)

    def create(number: int) -> int:
        storage = lash.sync.shared(memory)
        start.wait()
        storage.sessions.create(f"s{number}")
        start.wait()
        return len(storage.sessions.list().sessions)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(create, range(8))) == [8] * 8


def test_a_storage_that_does_not_open_is_tried_again(tmp_path: Path) -> None:
    """Every call raises the error of the opening, until the cause is gone."""
    target = tmp_path / "missing" / "a.db"
    storage = lash.sync.shared(f"sqlite:///{target}")
    for _ in range(2):
        with pytest.raises(lash.LashError, match="missing"):
            storage.sessions.create("x")
    target.parent.mkdir()
    assert storage.sessions.create("x").created
    storage.close()


def test_a_url_spelled_differently_is_the_same_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path, a link and an absolute path name one storage; the path is resolved when it is given."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    relative = lash.sync.shared("sqlite:///a.db")
    monkeypatch.chdir("/")
    relative.sessions.create("x")
    assert (tmp_path / "a.db").exists()
    for spelled in (f"{tmp_path}/a.db", f"{tmp_path}/link/a.db", f"{tmp_path}/./%61.db"):
        assert lash.sync.shared(f"sqlite:///{spelled}").session("x").revision() == 0
        assert shared_link(f"sqlite:///{spelled}", {}) is shared_link(f"sqlite:///{tmp_path}/a.db", {})
    assert len(loop_threads()) == 1
    relative.close()


def test_options_are_given_once(memory: str) -> None:
    """The first options stand: the same ones or none are accepted later, others raise ConfigError."""
    names: list[str] = []
    storage = lash.sync.shared(memory)
    storage.sessions.create("x")
    with pytest.raises(lash.ConfigError, match="pass options once"):
        lash.shared(memory, on_statement=names.append)
    file = f"{memory}?busy_timeout_ms=1"
    lash.shared(file)
    lash.shared(file, on_statement=names.append)
    lash.sync.shared(file, on_statement=names.append).sessions.create("x")
    lash.sync.shared(file).close()
    assert names
    with pytest.raises(lash.ConfigError, match="pass options once"):
        lash.shared(file, migrate=False)


def test_the_options_are_those_of_open() -> None:
    """Every option of `lash.open` but the pool, which belongs to one event loop, can be given."""
    given = inspect.signature(open_storage).parameters.values()
    keywords = {each.name for each in given if each.kind is each.KEYWORD_ONLY}
    assert set(OpenOptions.__annotations__) == keywords - {"pool"}


def test_a_wrong_url_is_refused_at_once() -> None:
    """No call is needed to find a wrong scheme or a malformed URL."""
    for wrong in ("mysql://host", "sqlite://host/a.db", "postgresql://h/d?unknown=1", "sqlite:///\ud800.db"):
        with pytest.raises(lash.ConfigError):
            lash.shared(wrong)


async def test_a_timeout_cancels_the_call_in_the_storage(url: str) -> None:
    """asyncio.timeout works as with an own storage, no task is left in the storage's loop, and it stays usable."""
    storage = lash.shared(url)
    await storage.processes.register(external("p"))
    link = shared_link(url, {})
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await storage.waiter.await_outcome("p")

    async def only_asks() -> bool:
        """Return whether the storage runs no call but this one."""
        tasks = await asyncio.to_thread(link.call, asyncio.all_tasks)
        return sum("Call._call" in repr(task) and not task.done() for task in tasks) <= 1

    await until(only_asks)
    assert (await storage.processes.get("p")) is not None


@pytest.mark.parametrize("backend_name", ["sqlite"])
async def test_a_short_call_changes_no_thread(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On SQLite, the statements of a read and of a brief write run in the thread of the caller."""
    monkeypatch.setattr(in_place, "_PATIENCE_S", PATIENCE_S)
    ran: list[tuple[str, int]] = []
    storage = lash.shared(url, on_statement=lambda name: ran.append((name, threading.get_ident())))
    await storage.sessions.create("s")

    async def ran_here(call: Callable[[], Awaitable[object]], *statements: str) -> bool:
        ran.clear()
        await call()
        assert tuple(name for name, _thread in ran) == statements
        return {thread for _name, thread in ran} == {threading.get_ident()}

    # The writer's thread takes over while commits are slow, and after writes of several tasks.
    await until(lambda: ran_here(storage.session("s").head, "session_read"))
    write = ("begin", "record_state", "record_put", "commit")
    await until(lambda: ran_here(lambda: storage.records.put("c", "k", 1), *write))
    await storage.close()


def test_a_fork_of_a_program_with_a_loop(tmp_path: Path) -> None:
    """A child of a parent that called from its own event loop gets ConfigError, in place or not."""
    script = """
        import asyncio, os, sys
        import lash
        storage = lash.shared(sys.argv[1])

        async def calls():
            for number in range(20):
                await storage.sessions.create(f"s{number}")

        asyncio.run(calls())
        child = os.fork()
        if not child:
            try:
                asyncio.run(calls())
            except lash.ConfigError as error:
                print(error, flush=True)
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
        asyncio.run(calls())
    """
    ended = run_script(script, f"sqlite:///{tmp_path / 'lash.db'}")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "opened before the process forked" in ended.stdout


async def test_errors_have_both_sides_in_their_traceback(memory: str) -> None:
    """An error keeps its class and fields; its traceback leads from the caller to the raise."""
    with pytest.raises(lash.SessionNotFound) as caught:
        await lash.shared(memory).session("unknown").meta()
    assert caught.value.session_id == "unknown"
    files = [Path(frame.filename).name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert (files[0], files[-1]) == (Path(__file__).name, "lookup.py")


async def test_the_opening_has_no_context_of_its_first_caller(memory: str) -> None:
    """A request's context variables do not stay in the storage's own tasks; a call sees those of its caller."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    seen: set[str] = set()
    url = f"{memory}?busy_timeout_ms=2"
    variable.set("the caller's")
    storage = lash.shared(url, on_statement=lambda _name: seen.add(variable.get()))
    await storage.report()
    assert "unset" in seen
    seen.clear()
    await storage.sessions.open("x")
    assert seen == {"the caller's"}
    await storage.close()


async def test_waiting_calls_end_when_the_storage_is_closed(url: str) -> None:
    """A wait gets StorageClosed; the next call opens the storage again; closing twice is closing once."""
    storage = lash.shared(url)
    await storage.processes.register(external("p"))
    waiting = asyncio.create_task(storage.waiter.await_outcome("p"))
    # The call has begun in the storage's loop once one that was sent later is answered.
    await storage.report()
    async with storage as same:
        assert same is storage
    assert not waiting.done()
    await storage.close()
    with pytest.raises(lash.StorageClosed):
        await waiting
    await storage.close()
    assert loop_threads() == []
    assert (await storage.processes.get("p") is None) == (url == MEMORY)


@pytest.mark.parametrize("backend_name", ["sqlite", "postgres"])
async def test_a_conversation_is_asked_and_observed_from_another_loop(backend_name: str, url: str) -> None:
    """A session handle on a shared storage sends, gets the reply and observes, in a loop other than the worker's."""
    app = lash.App(url)

    @app.agent
    async def agent(turn: lash.Turn) -> str:
        turn.activity("thinking")
        return f"you said {turn.text}"

    async def elsewhere() -> tuple[str, list[str]]:
        chat = lash.SessionHandle(lash.shared(url), "chat")
        cursor = await chat.cursor()
        reply = await chat.ask("hi", timeout_s=PATIENCE_S)
        kinds: list[str] = []
        async for observed in chat.observe(cursor):
            kinds.append(type(observed).__name__)
            if isinstance(observed, lash.Committed):
                break
        return reply, kinds

    async with app:
        reply, kinds = await asyncio.to_thread(asyncio.run, elsewhere())
    assert reply == "you said hi"
    assert "TurnActivity" in kinds
    assert kinds[-1] == "Committed"


async def test_a_listener_receives_hints(url: str) -> None:
    """Listening starts at once, without a wait; hints of the same process arrive."""
    storage = lash.shared(url)
    with storage.hints.listen() as listener:
        storage.hints.notify()
        assert (await listener.wait(PATIENCE_S)).process
        listener.hint()
        assert (await listener.wait(PATIENCE_S)).process
    with pytest.raises(lash.InvalidInput, match="closed"):
        await listener.wait(0)


async def test_what_was_sent_first_runs_before_the_storage_is_seen(memory: str) -> None:
    """A call that comes at the very end of the opening runs after all that was sent before it."""
    storage, sent = LazyStorage(memory, OpenOptions()), list[str]()
    storage.use_in_order(lambda _: sent.append("first"))
    storage.use_in_order(lambda _: sent.append("second"))
    while storage.opened is None:  # noqa: ASYNC110 (the first iteration of the loop that sees it is the test)
        await asyncio.sleep(0)
    assert sent == ["first", "second"]
    await storage.close()


async def test_a_listener_outlives_an_opening_that_failed(tmp_path: Path) -> None:
    """A listener that was made before the storage could be opened works as soon as it can."""
    target = tmp_path / "missing" / "a.db"
    storage = lash.shared(f"sqlite:///{target}")
    with storage.hints.listen() as listener:
        with pytest.raises(lash.LashError, match="missing"):
            await listener.wait(PATIENCE_S)
        target.parent.mkdir()
        listener.hint()
        assert (await listener.wait(PATIENCE_S)).process
    lash.sync.shared(f"sqlite:///{target}").close()


async def test_values_that_need_no_await(url: str) -> None:
    """Properties and plain methods that return a value block until the storage's loop has it."""
    storage = lash.shared(url)
    expected = lash.Durability.INLINE if url == MEMORY else lash.Durability.DURABLE
    assert storage.durability is expected
    async with await lash.open(MEMORY) as own:
        assert storage.triggers.source_key("github.push") == own.triggers.source_key("github.push")


def test_under_trio_the_error_names_the_remedy(memory: str) -> None:
    """A call under trio raises ConfigError; the blocking facade works in a thread of trio."""

    async def main() -> bool:
        with pytest.raises(lash.ConfigError, match=r"lash\.sync.shared.*trio.to_thread.run_sync"):
            await lash.shared(memory).sessions.create("x")
        return (await trio.to_thread.run_sync(lash.sync.shared(memory).sessions.create, "x")).created

    assert trio.run(main)


def store_classes() -> dict[str, tuple[type[Any], type[Any]]]:
    """Return each class of a shared storage with the Protocol that it follows, by name."""
    kinds = {"Storage": (lash.Storage, storage_class()), "Session": (Session, session_class())}
    others = {name: getattr(lash.stores, name) for name in dir(lash.stores)} | {
        each.__name__: each for each in (SessionWaiter, ReplyWatch, ObserverWatch)
    }
    chosen = {
        name for name in others if name.endswith(("Store", "Hints", "HintListener", "Maintenance", "Waiter", "Watch"))
    }
    return kinds | {name: (others[name], any_loop_class(others[name])) for name in chosen - {"ByteStore"}}


@pytest.mark.parametrize("name", sorted(store_classes()))
def test_every_method_of_a_store_is_there(name: str) -> None:
    """A store has the public names of its Protocol, awaited where those are, with their signatures."""
    source, kind = store_classes()[name]
    wanted = {each for each in dir(source) if not each.startswith("_")}
    assert {each for each in dir(kind) if not each.startswith("_")} == wanted
    for each in wanted:
        member, original = getattr(kind, each), getattr(source, each)
        assert inspect.iscoroutinefunction(member) == inspect.iscoroutinefunction(original)
        assert not inspect.isasyncgenfunction(original), "wrap async iterators in lash.connect.any_loop first"
        if inspect.isfunction(member) and name not in ("Storage", "Session"):
            assert inspect.signature(member) == inspect.signature(original)


@pytest.mark.parametrize("opened", ["before", "after"])
def test_a_fork(tmp_path: Path, opened: str) -> None:
    """A child forked after the first call gets ConfigError; one forked before it opens its own storage."""
    script = """
        import os, sys
        import lash
        storage = lash.sync.shared(sys.argv[1])
        if sys.argv[2] == "before":
            storage.sessions.create("parent")
        child = os.fork()
        if not child:
            try:
                print("child", storage.sessions.create("child").created, flush=True)
            except lash.ConfigError as error:
                print(error, flush=True)
            storage.close()
            sys.exit()
        assert os.waitpid(child, 0)[1] == 0
        storage.sessions.create("parent")
        print(*sorted(each.meta.session_id for each in storage.sessions.list().sessions))
    """
    ended = run_script(script, f"sqlite:///{tmp_path / 'lash.db'}", opened)
    first, last = ended.stdout.splitlines()
    assert (ended.returncode, ended.stderr) == (0, "")
    if opened == "before":
        assert "opened before the process forked" in first
        assert "'spawn'" in first
        assert last == "parent"
    else:
        assert (first, last) == ("child True", "child parent")


def test_the_storage_is_closed_at_exit_while_threads_call(tmp_path: Path) -> None:
    """A program ends at once; calls in flight are finished or refused, and what was acknowledged is in the file."""
    script = """
        import sys, threading
        import lash
        storage = lash.sync.shared(sys.argv[1])
        written = threading.Event()

        def write(name):
            number = 0
            while True:
                try:
                    storage.sessions.create(f"{name}-{number}")
                except lash.StorageClosed:
                    return
                sys.stdout.write(f"{name}-{number}\\n")
                sys.stdout.flush()
                number += 1
                if number == 20:
                    written.set()

        for name in "abc":
            threading.Thread(target=write, args=(name,), daemon=True).start()
        written.wait()
    """
    url = f"sqlite:///{tmp_path / 'lash.db'}"
    ended = run_script(script, url)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not (tmp_path / "lash.db-wal").exists()
    with lash.sync.open(url) as storage:
        stored = {each.meta.session_id for each in storage.sessions.list(limit=1_000).sessions}
    acknowledged = {line for line in ended.stdout.splitlines() if line}
    assert len(acknowledged) >= 20
    assert acknowledged <= stored
