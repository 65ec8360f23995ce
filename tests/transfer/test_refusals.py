"""Refused imports, which leave nothing behind."""

from __future__ import annotations

import copy
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lash
from lash.errors import CommitTooLarge, CorruptData, InvalidInput, SessionDeleted, SessionExists, SessionNotFound
from lash.model.queue import BatchDraft, TurnInput
from lash.model.session.commit import CommitBudget
from lash.stores.storage import Storage
from lash.transfer import export_session, import_session
from tests.factories.session import chain, commit, created, started
from tests.transfer.hostile import Hostile, hostile_files
from tests.transfer.kit import comparable, exported, opened, parsed, rich_session, sealed, whole

Lines = list[dict[str, Any]]


async def rich_file() -> bytes:
    async with opened("sqlite://") as (storage,):
        await rich_session(storage, video=b"\xfe" * 1_000)
        return await exported(storage, with_queue=True)


async def require_nothing(storage: Storage) -> None:
    """Assert that an import left no rows."""
    assert (await storage.sessions.list()).sessions == ()
    with pytest.raises(SessionNotFound):
        await storage.session("s").head()
    assert (await storage.report()).nouns["attachment"].rows == 0


async def test_an_equal_session_is_recognised(backend_url: str) -> None:
    """The second import of a file changes nothing and reports it."""
    async with opened("sqlite://", backend_url) as (source, target):
        await rich_session(source)
        file = await exported(source, with_queue=True)
        first = await import_session(target, io.BytesIO(file))
        head = await target.session("s").head()
        second = await import_session(target, io.BytesIO(file))
        assert (first.created, first.batches_added) == (True, 3)
        assert (second.created, second.batches_added) == (False, 0)
        assert await target.session("s").head() == head
        assert len(await target.queue.list("s")) == 3


async def test_another_session_of_the_same_id_is_left_alone(backend_url: str) -> None:
    """A taken id raises SessionExists, whether a session or only queued work has it."""
    async with opened("sqlite://", backend_url) as (source, target):
        await rich_session(source)
        file = await exported(source)
        await started(target, "s", "other")
        before = await exported(target)
        with pytest.raises(SessionExists, match="not the one to be imported"):
            await import_session(target, io.BytesIO(file))
        assert await exported(target) == before
        await created(target, "t")
        await target.queue.enqueue(BatchDraft(session_id="t", payloads=(TurnInput.of_text("hello"),)))
        with pytest.raises(SessionExists):
            await import_session(target, io.BytesIO(file), session_id="t")
        assert await target.session("t").head() is None


async def test_a_session_that_went_on_is_left_alone() -> None:
    """Importing a session again after another turn changes nothing."""
    async with opened("sqlite://", "sqlite://") as (source, target):
        await started(source)
        file = await exported(source)
        imported = await import_session(target, io.BytesIO(file))
        await target.session("s").commit(commit(imported.revision, *chain("b", after="a")))
        with pytest.raises(SessionExists):
            await import_session(target, io.BytesIO(file))
        assert [each.node_id for each in (await whole(target)).graph.nodes] == ["a", "b"]


async def test_a_deleted_session_can_be_imported_again(backend_url: str) -> None:
    """A deleted session can be imported again; only its revision differs."""
    async with opened(backend_url) as (storage,):
        await rich_session(storage)
        file = await exported(storage)
        await storage.sessions.delete("s")
        assert (await import_session(storage, io.BytesIO(file))).created
        assert comparable(await exported(storage)) == comparable(file)


async def test_a_budget_that_is_too_small_is_named(backend_url: str) -> None:
    """The error names the limit to raise, and nothing of the session is written."""
    file = await rich_file()
    storage = await lash.open(backend_url, budget=CommitBudget(max_rows=5))
    async with storage:
        with pytest.raises(CommitTooLarge, match=r"at most 5: open it with a larger budget") as caught:
            await import_session(storage, io.BytesIO(file))
        assert caught.value.measure == "rows"
        assert (await storage.sessions.list()).sessions == ()
        with pytest.raises(SessionDeleted):
            await storage.session("s").head()


async def test_an_unknown_session_writes_no_file() -> None:
    """Exporting an unknown session raises SessionNotFound before the first byte."""
    async with opened("sqlite://") as (storage,):
        stream = io.BytesIO()
        with pytest.raises(SessionNotFound):
            await export_session(storage, "unknown", stream)
        assert stream.getvalue() == b""


def _version(lines: Lines) -> None:
    lines[0]["version"] = 4


def _format(lines: Lines) -> None:
    lines[0]["format"] = "tar"


def _unknown_field(lines: Lines) -> None:
    lines[3]["frame"]["colour"] = "red"


def _unknown_kind(lines: Lines) -> None:
    lines[2]["kind"] = "python"


def _swapped(lines: Lines) -> None:
    lines[1], lines[2] = lines[2], lines[1]


def _second_head(lines: Lines) -> None:
    lines.insert(3, copy.deepcopy(lines[2]))


def _data_first(lines: Lines) -> None:
    lines.insert(2, {"kind": "data", "text": "x"})


BAD_LINES: list[tuple[Callable[[Lines], None], int, str]] = [
    (_version, 1, "version 4; this lash reads versions 1 to 3: import it with a newer lash"),
    (_format, 1, "expected an exported session"),
    (_unknown_field, 4, "does not know"),
    (_unknown_kind, 3, "python"),
    (_swapped, 2, "head line cannot stand here"),
    (_second_head, 4, "head line cannot stand here"),
    (_data_first, 3, "data line cannot stand here"),
]


@pytest.mark.parametrize(("change", "number", "reason"), BAD_LINES)
async def test_a_bad_line_is_named(change: Callable[[Lines], None], number: int, reason: str) -> None:
    """InvalidInput names the line and the error in it; nothing is created."""
    lines = parsed(await rich_file())
    change(lines)
    async with opened("sqlite://") as (storage,):
        with pytest.raises(InvalidInput, match=rf"^line {number}: .*{reason}"):
            await import_session(storage, io.BytesIO(sealed(lines)))
        await require_nothing(storage)


def _cycle(lines: Lines) -> None:
    next(line for line in lines if line["kind"] == "node")["node"]["parent_node_id"] = "c"


def _twin(lines: Lines) -> None:
    nodes = [line for line in lines if line["kind"] == "node"]
    nodes[1]["node"]["node_id"] = "a"


def _nul_in_an_id(lines: Lines) -> None:
    nodes = [line for line in lines if line["kind"] == "node"]
    nodes[-1]["node"]["node_id"] = "a\0"


def _no_leaf(lines: Lines) -> None:
    lines[2]["leaf_node_id"] = "nowhere"


def _other_counts(lines: Lines) -> None:
    lines[0]["counts"]["nodes"] = 5


def _no_checkpoint(lines: Lines) -> None:
    lines[:] = [line for line in lines if line["kind"] != "checkpoint"]


def _other_state(lines: Lines) -> None:
    next(line for line in lines if line["kind"] == "checkpoint")["turn_state"]["turn_index"] = 8


def _no_frame(lines: Lines) -> None:
    lines[2]["current_frame_id"] = "nowhere"


def _long_name(lines: Lines) -> None:
    lines[1]["name"] = "x" * 5_000


def _media_type(lines: Lines) -> None:
    next(line for line in lines if line["kind"] == "attachment")["ref"]["media_type"] = "../etc"


def _no_payload(lines: Lines) -> None:
    next(line for line in lines if line["kind"] == "batch")["payloads"] = []


def _empty_usage(lines: Lines) -> None:
    next(line for line in lines if line["kind"] == "usage")["entry"]["usage"] = {}


def _usage_twice(lines: Lines) -> None:
    first, second = [line for line in lines if line["kind"] == "usage"][:2]
    second["entry"]["source"] = first["entry"]["source"]


def _blobs_in_disorder(lines: Lines) -> None:
    place = max(place for place, line in enumerate(lines) if line["kind"] == "blob")
    blob, data = lines.pop(place), lines.pop(place)
    first = next(place for place, line in enumerate(lines) if line["kind"] == "blob")
    lines[first:first] = [blob, data]


def _negative_usage(lines: Lines) -> None:
    next(line for line in lines if line["kind"] == "usage")["entry"]["usage"]["input_tokens"] = -1


@pytest.mark.parametrize(
    "change",
    [
        _cycle,
        _twin,
        _nul_in_an_id,
        _no_leaf,
        _other_counts,
        _no_checkpoint,
        _other_state,
        _no_frame,
        _long_name,
        _media_type,
        _no_payload,
        _negative_usage,
        _empty_usage,
        _usage_twice,
        _blobs_in_disorder,
    ],
)
async def test_what_makes_no_session_is_refused_before_anything_is_written(change: Callable[[Lines], None]) -> None:
    """A file with valid hashes and invalid content is refused before anything is created."""
    lines = parsed(await rich_file())
    change(lines)
    async with opened("sqlite://") as (storage,):
        with pytest.raises(InvalidInput):
            await import_session(storage, io.BytesIO(sealed(lines)))
        await require_nothing(storage)


async def test_our_own_seal_is_accepted() -> None:
    """The unchanged lines of the refused files can be imported."""
    async with opened("sqlite://") as (storage,):
        assert (await import_session(storage, io.BytesIO(sealed(parsed(await rich_file()))))).created


@pytest.mark.parametrize("kind", ["blob", "attachment"])
async def test_damaged_bytes_are_corrupt(kind: str) -> None:
    """Bytes with a wrong hash raise CorruptData, even if the file itself has a valid hash."""
    lines = parsed(await rich_file())
    place = next(
        place for place, line in enumerate(lines) if line["kind"] == "data" and lines[place - 1]["kind"] == kind
    )
    lines[place] = {"kind": "data", "text": "other"}
    async with opened("sqlite://") as (storage,):
        with pytest.raises(CorruptData, match=rf"^line {place + 2}: "):
            await import_session(storage, io.BytesIO(sealed(lines)))
        await require_nothing(storage)


async def test_a_file_that_is_cut_off_is_refused_wherever() -> None:
    """A truncated file is refused, wherever it is cut."""
    file = await rich_file()
    lines = file.splitlines(keepends=True)
    async with opened("sqlite://") as (storage,):
        for count in range(len(lines)):
            with pytest.raises(InvalidInput, match=rf"^line {count + 1}: "):
                await import_session(storage, io.BytesIO(b"".join(lines[:count])))
        with pytest.raises(InvalidInput, match="ends before its end line"):
            await import_session(storage, io.BytesIO(file[:-1]))
        with pytest.raises(InvalidInput, match="follows the end line"):
            await import_session(storage, io.BytesIO(file + b"\n"))
        await require_nothing(storage)


async def test_a_line_is_read_up_to_a_limit(tmp_path: Path) -> None:
    """A line longer than the limit is refused before it is read completely."""
    path = tmp_path / "long"
    path.write_bytes(b'{"kind":"header",' + b" " * 10_000_000)
    asked: list[int] = []

    class Source(io.FileIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            asked.append(-1 if size is None else size)
            return super().readline(size)

    async with opened("sqlite://") as (storage,):
        with Source(path) as stream, pytest.raises(InvalidInput, match="line 1 is longer than 1,000 bytes"):
            await import_session(storage, stream, max_line_bytes=1_000)
        assert asked == [1_001]
        with pytest.raises(InvalidInput, match="binary mode"):
            await import_session(storage, io.StringIO("{}\n"))  # type: ignore[arg-type]


def mutated(file: bytes, seed: int) -> bytes:
    """Return the file with one random change: a byte, a cut, a repeat, or a token of JSON."""
    chance = random.Random(seed)
    place = chance.randrange(len(file))
    other = chance.randrange(len(file))
    match seed % 5:
        case 0:
            return file[:place] + bytes([file[place] ^ (1 << chance.randrange(8))]) + file[place + 1 :]
        case 1:
            return file[:place] + chance.randbytes(chance.randrange(1, 9)) + file[place:]
        case 2:
            return file[: min(place, other)] + file[max(place, other) :]
        case 3:
            return file[:place] + file[other : other + chance.randrange(1, 400)] + file[place:]
        case _:
            token = chance.choice([b"null", b"-1", b"1e999", b'"\\ud800"', b"[" * 3000, b"}", b"\n", b"\0", b"9" * 40])
            return file[:place] + token + file[place:]


async def test_mutated_files_never_crash_and_never_leave_anything() -> None:
    """Each of 500 randomly changed files is refused with a line number, and the storage stays empty."""
    file = await rich_file()
    async with opened("sqlite://") as (storage,):
        for seed in range(500):
            changed = mutated(file, seed)
            if changed == file:
                continue
            with pytest.raises((InvalidInput, CorruptData), match=r"^line \d+"):
                await import_session(storage, io.BytesIO(changed))
        await require_nothing(storage)


async def test_mutated_values_in_sealed_files_never_crash() -> None:
    """Each of 200 files with random values and valid hashes is imported whole or refused without a trace."""
    lines = parsed(await rich_file())
    values: list[Any] = [None, -1, 2**70, "", "\0", "x" * 300, [], {}, True, 1.5, [[]], {"a": 1}, "a", "f1"]
    async with opened("sqlite://") as (storage,):
        for seed in range(200):
            chance = random.Random(seed)
            changed = json.loads(json.dumps(lines))
            _set_somewhere(chance.choice(changed[:-1]), chance.choice(values), chance)
            try:
                await import_session(storage, io.BytesIO(sealed(changed)), session_id=f"s{seed}")
            except (InvalidInput, CorruptData):
                with pytest.raises(SessionNotFound):
                    await storage.session(f"s{seed}").head()
            else:
                assert (await storage.session(f"s{seed}").load()) is not None


def _set_somewhere(value: Any, new: object, chance: random.Random) -> None:  # noqa: ANN401 - any JSON
    """Return a value with another value at a random position inside."""
    key = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
    if isinstance(value[key], dict | list) and value[key] and chance.random() < 0.8:
        _set_somewhere(value[key], new, chance)
    else:
        value[key] = new


async def test_each_field_is_replaced_and_its_error_names_it() -> None:
    """A file with any field replaced is imported whole, or refused with its line and field and without a trace.

    Every field is replaced by some of the hostile values; `tests/proof/fuzz/test_import.py` takes all of them.
    """
    file = await rich_file()
    async with opened("sqlite://") as (storage,):
        for number, hostile in enumerate(hostile_files(file)):
            if number % 37 == 0:
                await require_refused_or_whole(storage, hostile, f"s{number}")


async def require_refused_or_whole(storage: Storage, hostile: Hostile, session_id: str) -> None:
    """Import a hostile file: an error names what was changed, and nothing is left."""
    refused: lash.LashError | None = None
    try:
        await import_session(storage, io.BytesIO(hostile.content), session_id=session_id)
    except (InvalidInput, CorruptData) as error:
        refused = error
    if refused is None:
        await storage.session(session_id).load()
        assert await storage.sessions.delete(session_id)
    else:
        assert hostile.is_named_by(str(refused)), (refused, hostile.number, hostile.way, hostile.value)
        assert await storage.sessions.open(session_id) is None
