"""URLs of storages. A wrong one is refused before anything is opened."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import lash
from lash.connect.url import identity_of
from lash.errors import ConfigError
from lash.sqlite.engine.options import SQLiteOptions
from lash.sqlite.storage import SQLiteStorage


@pytest.fixture(autouse=True)
def nothing_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test runs in an empty working directory and must leave it empty, so no file was opened."""
    monkeypatch.chdir(tmp_path)
    yield
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite://agents.db", r"names a host; write a file with three slashes: sqlite:///agents\.db"),
        ("sqlite://host/agents.db", "names a host"),
        ("sqlite://[broken", "malformed URL"),
        ("sqlite:///agents.db#1", "contains '#'; in a file name write it as %23"),
        ("sqlite:///a%00b.db", "contains a NUL character"),
        ("sqlite:///a\0b.db", "contains a NUL character"),
        ("sqlite:///agents.db?journal=wal", "unknown option 'journal' of a sqlite URL; expected one of synchronous"),
        ("sqlite:///agents.db?busy_timeout_ms=soon", "busy_timeout_ms: expected a number, got 'soon'"),
        ("sqlite:///agents.db?busy_timeout_ms=", "busy_timeout_ms: expected a number, got ''"),
        ("sqlite:///agents.db?busy_timeout_ms=-1", "busy_timeout_ms: expected 0 or more, got -1"),
        ("sqlite:///agents.db?synchronous=off", "synchronous: expected 'full' or 'normal', got 'off'"),
        ("sqlite:///agents.db?group_limit=1", "unknown option 'group_limit'"),
        ("mysql://host/agents", "unknown URL scheme 'mysql'; expected sqlite:///agents"),
        ("SQLITE:///agents.db", "unknown URL scheme 'SQLITE'"),
        ("agents.db", "unknown URL scheme 'agents.db'"),
        ("sqlite:agents.db", "unknown URL scheme 'sqlite:agents.db'"),
        ("", "unknown URL scheme ''"),
        ("sqlite:///" + "a" * 300, "invalid file name .*: File name too long"),
        ("sqlite:///\ud800.db", "invalid file name"),
        ("postgresql:u:canary@host/db", "^unknown URL scheme a text with '@' in it"),
        ("u:canary@host://db", "^unknown URL scheme a text with '@' in it"),
        ("sqlite://u:canary@host/a.db", "^a text with '@' in it names a host.*: sqlite:///file$"),
        (Path("agents.db"), "expected a URL such as .*, got PosixPath"),
        (None, "got NoneType"),
    ],
)
async def test_a_wrong_url_is_refused_before_anything_is_opened(url: str, message: str) -> None:
    """The error has the fault and the right form, and no file appears."""
    with pytest.raises(ConfigError, match=message):
        await lash.open(url)


@pytest.mark.parametrize(
    ("url", "same", "other"),
    [
        ("sqlite:///a.db", "sqlite:///./%61.db", "sqlite:///b.db"),
        ("sqlite://", "sqlite:///:memory:", "sqlite:///a.db"),
        (
            "sqlite:///a.db?synchronous=full&busy_timeout_ms=1",
            "sqlite:///a.db?busy_timeout_ms=1&synchronous=full",
            "sqlite:///a.db?busy_timeout_ms=2&synchronous=full",
        ),
        ("postgresql://u@h/d", "postgres://u@H:5432/d", "postgresql://u@h:5433/d"),
        ("postgresql://u@h/d", "postgresql:///d?host=h&user=u", "postgresql://u@h/e"),
        ("postgresql://u:a%40b@h/d", "postgresql://h/d?password=a%40b&user=u", "postgresql://u:other@h/d"),
        ("postgresql://a,b:6432/d", "postgresql://A:5432,B:6432/d", "postgresql://b:6432,a/d"),
        ("postgresql:///d?host=%2Ftmp", "postgresql://%2Ftmp/d", "postgresql://%2Fvar/d"),
        (
            "postgresql://h/d?schema=s&sslmode=require&max_size=16",
            "postgresql://h/d?sslmode=require&schema=s",
            "postgresql://h/d?sslmode=disable&schema=s",
        ),
    ],
)
def test_urls_of_the_same_storage_are_equal(url: str, same: str, other: str) -> None:
    """Spelling, order, defaults and place of a part do not matter; a part that differs does."""
    assert identity_of(url) == identity_of(same)
    assert identity_of(url) != identity_of(other)


async def test_a_wrong_compression_is_refused() -> None:
    """The error lists the profiles."""
    with pytest.raises(ConfigError, match="unknown compression 'fast'; expected one of low_latency, balanced, compact"):
        await lash.open("sqlite:///agents.db", compression="fast")  # type: ignore[arg-type]


async def test_a_pool_goes_with_postgres_only() -> None:
    """A pool for a file is refused, not ignored."""
    with pytest.raises(ConfigError, match="expected a postgresql:// URL with pool"):
        await lash.open("sqlite:///agents.db", pool=object())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "path", "options"),
    [
        ("sqlite://", None, SQLiteOptions()),
        ("sqlite:///", None, SQLiteOptions()),
        ("sqlite:///:memory:", None, SQLiteOptions()),
        ("sqlite:///agents.db", "agents.db", SQLiteOptions()),
        ("sqlite:///data/agents.db", "data/agents.db", SQLiteOptions()),
        ("sqlite:////var/lib/agents.db", "/var/lib/agents.db", SQLiteOptions()),
        ("sqlite:///my%20agents%23%3F.db", "my agents#?.db", SQLiteOptions()),
        ("sqlite:///%C3%BC.db", "ü.db", SQLiteOptions()),
        ("sqlite:///a.db?synchronous=normal", "a.db", SQLiteOptions(synchronous="normal")),
        ("sqlite:///a.db?busy_timeout_ms=0", "a.db", SQLiteOptions(busy_timeout_ms=0)),
        (
            "sqlite://?synchronous=normal&busy_timeout_ms=250",
            None,
            SQLiteOptions(synchronous="normal", busy_timeout_ms=250),
        ),
    ],
)
async def test_a_url_names_a_path_and_options(
    url: str, path: str | None, options: SQLiteOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three slashes are a relative file, four an absolute one, two are memory."""
    opened: list[tuple[str | None, object]] = []

    async def record(path: str | None, **given: object) -> None:
        opened.append((path, given["options"]))

    monkeypatch.setattr(SQLiteStorage, "open", record)
    await lash.open(url)
    assert opened == [(path, options)]
