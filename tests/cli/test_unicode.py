"""Every character of Unicode in the output: none drives a terminal, JSON keeps its value, columns stay aligned."""

from __future__ import annotations

import ast
import asyncio
import ctypes
import json
import locale
import os
import subprocess
import sys
import unicodedata
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import lash
from lash.cli.output import escaped, json_line, one_line
from lash.cli.text import shortened, width_of
from tests.cli.kit import ROOT, command, environment, run, terminal
from tests.factories.process import event, process
from tests.factories.session import commit, node

HARMFUL = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
KEPT = frozenset("\t\u200c\u200d")
"""Tabs, and the joiners that languages and emoji need."""
SAMPLES = "".join(
    (
        *map(chr, (*range(1, 0x20), *range(0x7F, 0xA0))),
        *("\u2028\u2029\u061c\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff"),
        *("\u00ad\ue000\U000f0000\ufdd0\uffff\u0378\U000e0041\U0010ffff"),
    )
)
"""All control characters but NUL, all marks of direction, and some of each other harmful category."""


@pytest.fixture(scope="module")
def categories() -> dict[str, str]:
    """All characters by their category."""
    found: dict[str, list[str]] = defaultdict(list)
    for code in range(sys.maxunicode + 1):
        found[unicodedata.category(chr(code))].append(chr(code))
    return {category: "".join(letters) for category, letters in found.items()}


def is_safe(text: str) -> bool:
    return not any(unicodedata.category(letter) in HARMFUL for letter in set(text) - KEPT)


def test_no_harmful_character_is_written_as_it_is(categories: dict[str, str]) -> None:
    """Characters of every harmful category are escaped one by one, and all others are left alone."""
    assert set(categories) >= HARMFUL | {"Lu", "Lo", "Mn", "Zs", "So"}
    for category, letters in categories.items():
        if category not in HARMFUL:
            assert escaped(letters) == letters, category
            continue
        for start in range(0, len(letters), 4_096):
            shown = escaped(letters[start : start + 4_096])
            assert is_safe(shown), category
        assert all(escaped(letter).startswith("\\") for letter in set(letters[:4_096]) - KEPT), category
        assert is_safe(one_line(letters[:4_096])), category
        assert "\t" not in one_line(letters[:4_096]), category


def test_json_of_every_character_is_safe_and_decodes_to_the_same(categories: dict[str, str]) -> None:
    """JSON holds no harmful character, is one line for every reader, and loses nothing."""
    for category, letters in categories.items():
        shown = json_line({"text": letters})
        assert is_safe(shown), category
        assert len(shown.splitlines()) == 1, category
        if category != "Cs":
            assert json.loads(shown) == {"text": letters}, category
    assert json.loads(json_line("\udcff.db")) == "\udcff.db"


def test_json_is_valid_in_every_encoding(categories: dict[str, str]) -> None:
    """Where the output is not UTF-8, JSON is ASCII and decodes to the same value."""
    for letters in (categories["Lo"][:20_000], categories["So"], SAMPLES):
        for encoding in ("ascii", "iso-8859-1", None):
            shown = json_line([letters], encoding)
            assert shown.isascii()
            assert json.loads(shown) == [letters]


def test_harmless_json_stays_readable() -> None:
    """Letters of all languages and emoji are not escaped."""
    assert json_line("grüße 你好 👨‍👩‍👧 نمی‌خواهم") == '"grüße 你好 👨‍👩‍👧 نمی‌خواهم"'
    assert json_line("a\u2028\U000e0041\x9b\x7f") == '"a\\u2028\\udb40\\udc41\\u009b\\u007f"'


def _c_widths() -> Iterator[tuple[str, int]]:
    """Yield how wide the C library says a character is, if every version of Unicode in use has it."""
    library = ctypes.CDLL(None)
    for code in range(0x20, sys.maxunicode + 1):
        letter = chr(code)
        if unicodedata.category(letter) in HARMFUL or unicodedata.ucd_3_2_0.category(letter) == "Cn":
            continue
        width = library.wcwidth(code)
        if width >= 0:
            yield letter, width


def test_widths_are_those_of_terminals() -> None:
    """Wide letters take two columns; marks, and the inner parts of Korean syllables, take none."""
    before = locale.setlocale(locale.LC_CTYPE)
    try:
        locale.setlocale(locale.LC_CTYPE, "C.UTF-8")
        different = [(hex(ord(letter)), width) for letter, width in _c_widths() if width_of(letter) != width]
    except locale.Error:
        pytest.skip("this machine has no C.UTF-8")
    finally:
        locale.setlocale(locale.LC_CTYPE, before)
    assert different == []


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("e\u0301", 1),
        ("\u0915\u094d\u0937", 2),
        ("a\u20dd", 1),
        ("\u1112\u1161\u11ab", 2),
        ("\u200cx\u200d", 1),
        ("日本語", 6),
        ("ﾊﾝｶｸ", 4),
        ("👍🏽", 4),
    ],
)
def test_widths_of_words(text: str, width: int) -> None:
    """A text is as wide as what a terminal draws; a cut one is never wider than asked."""
    assert width_of(text) == width
    for room in range(1, width + 1):
        assert width_of(shortened(text, room)) <= room


def fill(url: str) -> None:
    """Store the samples wherever a text can be stored."""

    async def filling() -> None:
        async with await lash.open(url) as storage:
            name = f"s{SAMPLES}"
            await storage.sessions.create(name, name=SAMPLES)
            await storage.session(name).commit(commit(0, node("a", None, SAMPLES), session_id=name))
            draft = lash.model.BatchDraft(session_id=name, payloads=(lash.model.TurnInput.of_text(SAMPLES),))
            await storage.queue.enqueue(draft)
            identity = lash.model.ProcessIdentity(kind="python", label=SAMPLES[:200])
            await storage.processes.register(process("p", identity=identity))
            await storage.events.append("p", event("note", SAMPLES))

    asyncio.run(filling())


def unpainted(text: str) -> str:
    """Return the text of a terminal without the colours of lash, and without line ends."""
    for code in ("0", "1", "31", "32", "33"):
        text = text.replace(f"\x1b[{code}m", "")
    return text.replace("\n", "")


def test_stored_text_is_harmless_wherever_it_is_shown(backend_url: str) -> None:
    """On a terminal and in a pipe, tables, texts, logs, JSON and errors hold no harmful character."""
    fill(backend_url)
    name = f"s{SAMPLES}"
    shown = (
        *(("sessions", "ls"), ("sessions", "show", name), ("sessions", "tree", name), ("queue", "ls"), ("ps",)),
        *(("logs", "p"), ("sessions", "rm", name, "--dry-run"), ("cancel", f"missing{SAMPLES}")),
    )
    for arguments in shown:
        for extra in ((), ("--json",)):
            piped = run(*arguments, *extra, url=backend_url)
            assert is_safe(piped.stdout.replace("\n", "")), (arguments, extra)
            assert is_safe(piped.stderr.replace("\n", "")), (arguments, extra)
    assert [json.loads(line)["meta"]["name"] for line in _lines("sessions", "ls", url=backend_url)] == [SAMPLES]
    assert SAMPLES in [json.loads(line)["payload"] for line in _lines("logs", "p", url=backend_url)]
    for arguments in (("sessions", "show", name), ("sessions", "ls", "--json"), ("cancel", f"missing{SAMPLES}")):
        with terminal(*arguments, url=backend_url) as screen:
            screen.end()
            assert is_safe(unpainted(screen.text)), arguments
            assert "\\x9b" in screen.text or "\\u009b" in screen.text, arguments


def _lines(*arguments: str, url: str) -> list[str]:
    return run(*arguments, "--json", url=url).stdout.splitlines()


def test_a_question_shows_the_name_harmlessly(backend_url: str) -> None:
    """A question that quotes an id escapes it."""
    fill(backend_url)
    with terminal("sessions", "rm", f"s{SAMPLES}", url=backend_url) as screen:
        screen.read_until("[y/N]:")
        screen.type("n\n")
        screen.end()
        assert is_safe(unpainted(screen.text))


def test_a_name_of_a_file_that_is_not_utf8_is_refused_or_shown(tmp_path: Path) -> None:
    """A backup, whose name SQLite gets, is refused with a clear error; an export is written, and its name escaped."""
    url = f"sqlite:///{tmp_path / 'a.db'}"
    fill(url)
    target = os.fsdecode(bytes(tmp_path) + b"/\xff.db")
    backup, export = (
        subprocess.run(
            command(*arguments, target), env=environment({"LASH_URL": url}), capture_output=True, text=True, check=False
        )
        for arguments in (("db", "backup"), ("sessions", "export", f"s{SAMPLES}"))
    )
    assert (backup.returncode, backup.stdout) == (2, "")
    assert backup.stderr == "lash: expected arguments in UTF-8, got other bytes\n"
    assert (export.returncode, export.stderr) == (0, "")
    assert "\\udcff.db" in export.stdout
    assert Path(target).exists()


def test_an_export_is_not_written_to_a_terminal(backend_url: str) -> None:
    """The file has the stored text as it is, so a terminal does not get it."""
    fill(backend_url)
    with terminal("sessions", "export", f"s{SAMPLES}", "-", url=backend_url) as screen:
        assert screen.end() == 2
        assert "standard output is a terminal; redirect it, or name a file" in screen.text


def test_only_one_file_writes() -> None:
    """Everything goes through one function: no other file of the command writes to a stream or prints."""
    writers = set()
    for file in (ROOT / "src/lash/cli").glob("*.py"):
        for found in ast.walk(ast.parse(file.read_text())):
            if isinstance(found, ast.Call) and ast.unparse(found.func) in _WRITING:
                writers.add(file.name)
    assert writers == {"output.py"}


_WRITING = frozenset(
    {
        *("print", "stream.write", "sys.stdout.write", "sys.stderr.write", "click.secho", "click.style"),
        *("traceback.print_exc", "traceback.print_exception", "sys.stdout.buffer.write"),
    }
)
