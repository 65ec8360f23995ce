"""The secret that signs keys: made once, kept in the database, never shown."""

from __future__ import annotations

import logging
from typing import cast

import pytest

import lash
from lash.sqlkit.rows import Content
from tests.factories.wait import CUSTOM, OPERATION, TURN, YES, placed
from tests.raw import raw

on_files = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)


async def _secret(url: str) -> bytes:
    ((secret,),) = await raw(url, "SELECT secret FROM lash_secrets WHERE name = 'waits'")
    return bytes(secret)


def _forms(secret: bytes) -> list[str]:
    """Return the forms in which the secret could appear in a text."""
    return [secret.hex(), repr(secret)[2:-1], str(list(secret)), secret.decode("latin-1")]


@on_files
async def test_the_secret_is_made_once(backend_url: str) -> None:
    """The first caller that needs the secret makes 32 random bytes; they never change."""
    async with await lash.open(backend_url) as storage:
        assert await raw(backend_url, "SELECT count(*) FROM lash_secrets") == [(0,)]
        key = await storage.waits.key(OPERATION, CUSTOM)
    first = await _secret(backend_url)
    assert len(first) == 32
    assert len(set(first)) > 8
    async with await lash.open(backend_url) as storage:
        assert await storage.waits.key(OPERATION, CUSTOM) == key
    assert await _secret(backend_url) == first


@on_files
async def test_another_secret_makes_every_key_unknown(backend_url: str) -> None:
    """After the secret is replaced, keys made with the old one are unknown."""
    async with await lash.open(backend_url) as storage:
        key = await storage.waits.key(OPERATION, CUSTOM)
        await storage.waits.resolve(key, YES)
    zeros = f"X'{'00' * 32}'" if backend_url.startswith("sqlite") else f"'\\x{'00' * 32}'::bytea"
    await raw(backend_url, f"UPDATE lash_secrets SET secret = {zeros}")
    async with await lash.open(backend_url) as storage:
        assert await storage.waits.resolve(key, YES) == lash.model.UnknownOrRevoked()
        assert await storage.waits.get(key) is None


@on_files
async def test_the_secret_is_shown_nowhere(backend_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """No repr, error, log record or statement hook contains it, in any form."""
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    async with await lash.open(backend_url, on_statement=said.append) as storage:
        await placed(storage)
        key = await storage.waits.key(TURN, CUSTOM)
        said += [repr(each) for each in (storage, storage.waits, vars(storage.waits)["_rows"], key, key.text)]
        with pytest.raises(lash.WaitUnknown) as unknown:
            await storage.waits.wait(key.text + "A")
        with pytest.raises(lash.InvalidInput) as invalid:
            await storage.waits.resolve(key, cast("lash.model.Resolved", "no resolution"))
        secret = await _secret(backend_url)
        # One lock: dropping it with the views of earlier tests takes several, which can deadlock with a read of them.
        await raw(backend_url, "ALTER TABLE lash_waits RENAME TO lash_waits_gone")
        with pytest.raises(lash.LashError) as broken:
            await storage.waits.resolve(key, YES)
        for raised in (unknown, invalid, broken):
            said += [str(raised.value), repr(raised.value), repr(raised.value.__cause__)]
    said += [record.getMessage() for record in caplog.records]
    assert not [text for text in said for form in _forms(secret) if form in text]


@on_files
async def test_a_secret_that_cannot_be_kept_is_not_told(backend_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a database that refuses the secret does not contain it."""
    made = b"a secret that was to be written."
    monkeypatch.setattr("secrets.token_bytes", lambda _count: made)
    async with await lash.open(backend_url) as storage:
        await raw(backend_url, "ALTER TABLE lash_secrets RENAME COLUMN created_at_ms TO moment")
        with pytest.raises(lash.LashError) as refused:
            await storage.waits.key(OPERATION, CUSTOM)
        said = [str(refused.value), repr(refused.value), str(refused.value.__cause__), repr(refused.value.__cause__)]
    assert not [text for text in said for form in _forms(made) if form in text]


def test_a_row_of_bytes_does_not_show_them() -> None:
    """The repr of a row that contains the secret does not show it."""
    assert repr(Content(b"secret")) == "Content(6 bytes)"
