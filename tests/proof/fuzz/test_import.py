"""Any file becomes a readable session, or a lash error names the wrong line."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lash
from lash.model.session.session import FullGraph
from lash.transfer import import_session
from tests.proof.fuzz.kit import HOSTILE_JSON, anything, fuzzed, lash_only_from, loose_json, places, replaced
from tests.transfer.hostile import hostile_files
from tests.transfer.kit import exported, parsed, rich_session, sealed
from tests.transfer.test_refusals import require_refused_or_whole


@pytest.fixture(scope="module")
def file() -> bytes:
    """A valid file with everything in it, including a queue."""

    async def make() -> bytes:
        async with await lash.open("sqlite://") as storage:
            await rich_session(storage, video=b"\xff" + b"frame" * 20)
            return await exported(storage, with_queue=True)

    return asyncio.run(make())


def imported(content: bytes) -> lash.LashError | None:
    """Import a file; a refused one leaves no row, an accepted one can be read and exported again."""

    async def take() -> lash.LashError | None:
        async with await lash.open("sqlite://") as storage:
            outcome = await lash_only_from(import_session(storage, io.BytesIO(content)))
            if isinstance(outcome, lash.LashError):
                assert not isinstance(outcome, lash.StoreUnavailable)
                return outcome
            session_id = outcome.session_id
            assert await storage.session(session_id).load(FullGraph()) is None or await exported(storage, session_id)
            return None

    return asyncio.run(take())


@fuzzed
@given(data=st.data())
def test_a_file_with_changed_values_is_a_session_or_refused(data: st.DataObject, file: bytes) -> None:
    """The attacker knows the format and recomputes the hashes, so only the values can be wrong."""
    lines = parsed(file)
    for _ in range(data.draw(st.integers(1, 2))):
        number = data.draw(st.integers(0, len(lines) - 2))
        way = data.draw(st.sampled_from(places(lines[number])[1:]))
        lines[number] = replaced(lines[number], way, data.draw(anything))
    imported(_sealed(lines))


@fuzzed
@given(data=st.data())
def test_a_file_with_other_lines_is_refused_or_a_session(data: st.DataObject, file: bytes) -> None:
    """Lines are removed, doubled, moved and inserted."""
    lines: list[dict[str, Any]] = parsed(file)
    for _ in range(data.draw(st.integers(1, 3))):
        source, target = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
        line = lines[source]
        if data.draw(st.booleans()):
            del lines[source]
        lines.insert(target, line)
        if data.draw(st.booleans()):
            del lines[target]
    imported(_sealed(lines or [{"kind": "end"}]))


@fuzzed
@given(data=st.data())
def test_a_file_of_other_bytes_is_refused(data: st.DataObject, file: bytes) -> None:
    """Bytes are flipped, cut off and inserted; the hashes in the last line reveal each of these."""
    place = data.draw(st.integers(0, len(file) - 1))
    rest = data.draw(st.sampled_from([file[place + 1 :], file[place:], b"", b"\n" + file[place:]]))
    piece = data.draw(st.binary(max_size=8) | st.sampled_from(HOSTILE_JSON).map(_bytes))
    content = file[:place] + piece + rest
    # Only the spaces of the last line, which holds the hashes, are not covered by a hash.
    above, last = file[: file.rindex(b"{")], parsed(file)[-1]
    spaced = content.startswith(above) and _one_line(content[len(above) :]) == last
    assert (imported(content) is None) == spaced


async def test_each_field_is_replaced_by_each_hostile_value(file: bytes) -> None:
    """A file with any field replaced is imported whole, or refused with its line and field and without a trace."""
    async with await lash.open("sqlite://") as storage:
        for number, hostile in enumerate(hostile_files(file)):
            await require_refused_or_whole(storage, hostile, f"s{number}")


def test_a_changed_line_of_any_kind_is_refused(file: bytes) -> None:
    """Every line is covered by a hash: an added space, which changes no value, is noticed in each of them."""
    lines = file.splitlines(keepends=True)
    kinds = {line["kind"] for line in parsed(file)[:-1]}
    assert {"header", "batch", "data", "node"} <= kinds
    for number, line in enumerate(lines[:-1]):
        changed = [*lines[:number], line.replace(b"{", b"{ ", 1), *lines[number + 1 :]]
        assert isinstance(imported(b"".join(changed)), lash.CorruptData), line


def _one_line(raw: bytes) -> object:
    """Return what a single line says, None if it is not exactly one."""
    try:
        return json.loads(raw) if raw.count(b"\n") == 1 and raw.endswith(b"\n") else None
    except ValueError:
        return None


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _sealed(lines: list[dict[str, Any]]) -> bytes:
    """Seal the lines if they are text that can be written at all, else give them as they are."""
    try:
        return sealed(lines)
    except (UnicodeEncodeError, KeyError, TypeError):
        return b"".join(_bytes(loose_json(line)) + b"\n" for line in lines)
