"""Any text argument is accepted, or a lash error says what is wrong with it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lash
from lash.base.codec import decode
from lash.cli.command import json_argument
from lash.cli.exits import CommandFailed
from lash.cli.output import one_line
from lash.cli.text import moment
from lash.cli.url import redacted, scrub, sqlite_path, without_password
from lash.connect.open import open_storage
from lash.model.effect import ExecutionScope, TurnScope
from lash.model.session.session import SessionOrder
from lash.model.wait import CustomIdentity
from lash.plan import activity, attachment
from lash.plan.process import change, process
from lash.plan.session import page
from lash.plan.trigger import list as trigger_list
from lash.plan.trigger import schedule
from lash.plan.trigger.cron import check_cron, next_tick, zone_of
from lash.plan.wait import sign_key, verify_key
from lash.postgres.engine.options import PostgresOptions
from lash.sqlite.storage import SQLiteStorage
from tests.proof.fuzz.kit import HOSTILE_JSON, anything, fuzzed, lash_only, lash_only_from, texts

SECRET = b"s" * 32
GENUINE = sign_key(SECRET, TurnScope(session_id="s", turn_id="t"), CustomIdentity(key="k"), "1.0").text

url_parts = st.sampled_from(
    [
        *(
            "sqlite",
            "postgresql",
            "postgres",
            "://",
            "/",
            ":",
            "@",
            "?",
            "#",
            "%",
            "%00",
            "%ff",
            "[",
            "]",
            "[::1]",
            "&",
        ),
        *("=", "schema", "max_size", "synchronous", "busy_timeout_ms", "host", "port", "password", "pooler", "sslmode"),
        *("\ud800", "\0", " ", "ü", "../", "a" * 300, "-1", "1e9", "nan", "inf", "9" * 5_000, ",", ";", "\n", "99999"),
    ]
)
urls = st.one_of(
    texts,
    st.lists(url_parts, max_size=12).map("".join),
    st.builds(
        lambda scheme, rest: scheme + "".join(rest),
        st.sampled_from(["sqlite:///", "sqlite://", "postgresql://", "postgresql://u:p@h/d?"]),
        st.lists(url_parts, max_size=8),
    ),
)
cursors = st.one_of(
    texts,
    st.builds(
        lambda kind, rest: base64.urlsafe_b64encode(kind + rest).decode(),
        st.sampled_from(
            [b"s1:", b"s2:ao:1:", b"p1:", b"t1:", b"c1:", b"c1:1:", b"", b"[", b'["a","', b"[1,", b"o1:", b"a1:"]
        ),
        st.binary(max_size=40) | st.integers().map(lambda number: b"%d" % number),
    ),
    st.sampled_from(HOSTILE_JSON).map(lambda text: base64.urlsafe_b64encode(text.encode()).decode()),
)
CURSORS: dict[str, Callable[[str], object]] = {
    "sessions": partial(page.decode_cursor, order=SessionOrder.CREATED, oldest_first=False),
    "active sessions": partial(page.decode_cursor, order=SessionOrder.ACTIVE, oldest_first=True),
    "processes": process.decode_process_cursor,
    "triggers": trigger_list.decode_trigger_cursor,
    "schedules": schedule.decode_schedule_cursor,
    "attachments": attachment.decode_line_cursor,
    "uncommitted": attachment.decode_page_key,
    "changes": change.decode_change_cursor,
    "observation": lambda cursor: activity.decode_cursor("s", cursor),
}
fields = st.one_of(
    st.sampled_from(["*", "0", "1-5", "*/2", "L", "7#9", "mon", "0-99999999", "1/0", "1,2,,", "-", "²", "٣", "W", "?"]),
    st.text("0123456789*/-,#LWmonsuj²٣", max_size=6),
)
cron_lines = st.one_of(texts, st.lists(fields, min_size=4, max_size=7).map(" ".join))


@fuzzed
@given(url=urls)
async def test_a_url_is_a_storage_or_refused(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is opened: only the file name or the server address is parsed."""
    monkeypatch.chdir(tmp_path)
    asked: list[object] = []

    async def record(*given: object, **_options: object) -> None:
        asked.append(given)

    with monkeypatch.context() as patched:
        patched.setattr(SQLiteStorage, "open", record)
        patched.setattr("lash.postgres.storage.PostgresStorage.open", record)
        outcome = await lash_only_from(open_storage(url))
    assert asked or isinstance(outcome, lash.ConfigError)
    if url.startswith("postgres"):
        options = lash_only(PostgresOptions.from_url, url)
        assert isinstance(options, lash.LashError) or options.address


@fuzzed
@given(rest=st.lists(url_parts, max_size=6).map("".join) | texts)
async def test_a_file_that_cannot_be_is_refused(rest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The path reaches the operating system; one that it cannot name raises a lash error."""
    monkeypatch.chdir(tmp_path)
    storage = await lash_only_from(open_storage(f"sqlite:///{tmp_path}/x{rest.replace('../', '')}"))
    if not isinstance(storage, lash.LashError):
        await storage.close()


@fuzzed
@given(url=urls, text=texts)
def test_a_url_is_shown_without_its_secrets_whatever_it_looks_like(url: str, text: str) -> None:
    """Redaction never fails: all error messages go through it."""
    assert isinstance(redacted(url), str)
    assert isinstance(scrub(text + url, url), str)
    if "://" in url and "[" not in url and "]" not in url:
        assert isinstance(without_password(url), str)
        sqlite_path(url)


@pytest.mark.parametrize("name", CURSORS)
@fuzzed
@given(cursor=cursors)
def test_a_cursor_is_a_place_or_refused(name: str, cursor: str) -> None:
    """A cursor comes from clients, so it may be any text."""
    outcome = lash_only(CURSORS[name], cursor)
    assert not isinstance(outcome, lash.LashError) or isinstance(outcome, lash.InvalidInput)


@fuzzed
@given(text=texts)
def test_a_key_that_was_not_given_out_is_none(text: str) -> None:
    """Only the exact text that was signed is a key; all others are refused alike."""
    assert verify_key(SECRET, text) is None


def test_a_key_with_one_other_letter_is_none() -> None:
    """Any changed character is refused, in the content or in the signature."""
    assert verify_key(SECRET, GENUINE) is not None
    changed = {GENUINE[:place] + letter + GENUINE[place + 1 :] for place in range(len(GENUINE)) for letter in "AB-_.= "}
    assert [text for text in changed - {GENUINE} if verify_key(SECRET, text) is not None] == []


@fuzzed
@given(
    cron=cron_lines, zone=texts | st.sampled_from(["UTC", "Europe/Berlin", "../passwd", "/etc/passwd", "Etc/../UTC"])
)
def test_a_cron_line_ticks_or_is_refused(cron: str, zone: str) -> None:
    """An accepted line has a next tick, at the beginning and at the end of time."""
    if isinstance(lash_only(check_cron, cron, zone), lash.LashError):
        return
    for moment_ms in (0, 2**62, 253_402_300_799_000):
        tick = lash_only(next_tick, cron, zone_of(zone), moment_ms)
        assert tick is None or (isinstance(tick, int) and tick > moment_ms)


@fuzzed
@given(text=st.sampled_from(HOSTILE_JSON) | texts)
def test_an_argument_of_the_command_is_json_or_refused(text: str) -> None:
    """The command prints one line: expected JSON."""
    if text == "-":
        return
    try:
        json_argument(text)
    except CommandFailed as error:
        failed = error
    else:
        return
    assert "expected JSON" in failed.line


@fuzzed
@given(text=texts, at_ms=st.integers(-(2**63), 2**63 - 1))
def test_what_is_stored_can_always_be_shown(text: str, at_ms: int) -> None:
    """No text moves the cursor of a terminal, and every timestamp that a column can hold is printed."""
    assert not set(one_line(text)) & set(map(chr, range(32))) - {"\t"}
    assert moment(at_ms)


SHAPES = (lash.model.Node, lash.model.SessionConfig, ExecutionScope, dict, lash.model.Registration, lash.Success)


def read_as_anything(text: bytes) -> None:
    """Read a text as records of several shapes."""
    for shape in SHAPES:
        outcome = lash_only(decode, text, shape, "a record")
        assert not isinstance(outcome, lash.LashError) or isinstance(outcome, lash.CorruptData)


@pytest.mark.parametrize("around", ["{}", '{{"value":{}}}', '{{"type":"turn","session_id":{}}}', '{{"payload":[{}]}}'])
def test_hostile_text_of_a_shape_is_read_or_damage(around: str) -> None:
    """Each hostile text, alone and wherever JSON is allowed."""
    for text in HOSTILE_JSON:
        read_as_anything(around.format(text).encode(errors="surrogatepass"))


@fuzzed
@given(text=anything.map(repr) | st.binary(max_size=30))
def test_stored_text_of_a_shape_is_read_or_damage(text: str | bytes) -> None:
    """Every record is read through this one function."""
    read_as_anything(text if isinstance(text, bytes) else text.encode(errors="surrogatepass"))
