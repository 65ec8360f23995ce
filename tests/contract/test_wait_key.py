"""The contract of wait keys: stable, unguessable, bound to one life of their session or process."""

from __future__ import annotations

import asyncio
import re
import string
from collections.abc import Iterator
from typing import Any, Final

import msgspec
import pytest

from lash.errors import (
    InvalidInput,
    ProcessNotFound,
    ProcessPruned,
    SessionDeleted,
    SessionNotFound,
    WaitUnknown,
)
from lash.model.effect import (
    ExecutionScope,
    OperationScope,
    ProcessScope,
    TurnScope,
)
from lash.model.wait import (
    Accepted,
    CustomIdentity,
    Resolved,
    SignalIdentity,
    ToolCompletion,
    UnknownOrRevoked,
    WaitIdentity,
    WaitKey,
)
from lash.stores.storage import Storage
from lash.testing.harness import Harness
from tests.contract.test_input import BAD_IDS
from tests.factories.process import DONE, registered
from tests.factories.session import created
from tests.factories.wait import (
    CUSTOM,
    IDENTITIES,
    OPERATION,
    PROCESS,
    SCOPES,
    SIGNAL,
    TOOL,
    TURN,
    TURNS,
    YES,
    key_of,
    placed,
)

JUNK: Final = (
    *("", " ", ".", "..", "...", "lw1", "lw1.", "lw1..", "lw2.e30.e30", "null", "\0", "lone \ud800", "ключ"),
    *("lw1." + "A" * 43, "lw1.!!!!." + "A" * 43, "lw1.W10." + "A" * 43, "lw1.A." + "A" * 43, "lw1.W10=." + "A" * 43),
    *("lw1.W10." + "A" * 42, "lw1.W10." + "A" * 44, "\nlw1.W10." + "A" * 43, "lw1.W10." + "A" * 43 + "\n"),
    *("lw1." + "A" * 100_000 + "." + "A" * 43, "A" * 1_000_000, "0" * 64, "../../etc/passwd", "' OR 1 = 1 --"),
)
"""Texts of many shapes that are not valid keys."""


LETTERS: Final = f"{string.ascii_letters}{string.digits}-_.=+/ \n\0é"
"""The letters of keys, and some that are not."""


class TestWaitKey:
    """Laws of making keys and refusing others."""

    async def test_a_key_is_always_the_same(self, harness: Harness) -> None:
        """The same wait has the same key in every storage; other scopes and other waits have others."""
        storage, other = await harness.open(), await harness.open()
        await placed(storage)
        keys = [await storage.waits.key(scope, identity) for scope in SCOPES for identity in IDENTITIES]
        again = [await other.waits.key(scope, identity) for scope in SCOPES for identity in IDENTITIES]
        assert again == keys
        assert len({key.key_id for key in keys}) == len({key.text for key in keys}) == len(keys)
        for key in keys:
            assert re.fullmatch("[0-9a-f]{64}", key.key_id)
            assert re.fullmatch(r"lw1\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", key.text)

    async def test_scopes_and_waits_do_not_mix(self, harness: Harness) -> None:
        """Equal ids in scopes and waits of different kinds, and ids with colons, make different waits."""
        storage = await harness.open()
        for session_id in ("x", "x:y", "turn:1:x"):
            await created(storage, session_id)
        await registered(storage, "x")
        scopes = (
            TurnScope(session_id="x", turn_id="y:z"),
            TurnScope(session_id="x:y", turn_id="z"),
            ProcessScope(process_id="x"),
            OperationScope(operation_id="x"),
            TurnScope(session_id="turn:1:x", turn_id="x"),
        )
        identities = (
            ToolCompletion(tool_call_id="x"),
            CustomIdentity(key="x"),
            SignalIdentity(process_id="x", signal_name="x", ordinal=1),
            SignalIdentity(process_id="x", signal_name="x", ordinal=2),
        )
        keys = [await storage.waits.key(scope, identity) for scope in scopes for identity in identities]
        assert len({key.key_id for key in keys}) == len(keys)
        for number, key in enumerate(keys):
            assert await storage.waits.resolve(key, Resolved(value=number)) == Accepted()
        assert [await storage.waits.wait(key) for key in keys] == [Resolved(value=each) for each in range(len(keys))]
        for scope in scopes:
            await storage.waits.open(await storage.waits.key(scope, CustomIdentity(key="open")))
            assert [each.scope for each in await storage.waits.pending(scope=scope)] == [scope]

    async def test_a_key_survives_reopening(self, harness: Harness) -> None:
        """The secret is stored in the database, so keys stay valid and are made the same after reopening."""
        storage = await placed(await harness.open())
        keys = {scope: await storage.waits.key(scope, CUSTOM) for scope in SCOPES}
        await storage.waits.resolve(keys[TURN], YES)
        again = await harness.reopen()
        assert {scope: await again.waits.key(scope, CUSTOM) for scope in SCOPES} == keys
        assert await again.waits.wait(keys[TURN].text) == YES
        assert await again.waits.resolve(keys[PROCESS].text, YES) == Accepted()

    async def test_concurrent_first_users_share_a_secret(self, harness: Harness) -> None:
        """Storages that concurrently need the first secret agree on one."""
        storages = [await harness.open() for _ in range(6)]
        keys = await asyncio.gather(*(storage.waits.key(OPERATION, CUSTOM) for storage in storages))
        assert len({key.text for key in keys}) == 1
        assert await storages[-1].waits.resolve(keys[0], YES) == Accepted()

    async def test_keys_of_missing_owners_are_refused(self, harness: Harness) -> None:
        """A wait needs its session or process to exist; an operation needs nothing."""
        storage = await harness.open()
        for scope in TURNS:
            with pytest.raises(SessionNotFound, match="'s'"):
                await storage.waits.key(scope, CUSTOM)
        with pytest.raises(ProcessNotFound, match="'p'"):
            await storage.waits.key(PROCESS, CUSTOM)
        await storage.waits.key(OPERATION, CUSTOM)
        await created(storage)
        await storage.sessions.delete("s")
        with pytest.raises(SessionDeleted, match="'s'"):
            await storage.waits.key(TURN, CUSTOM)
        await registered(storage, outcome=DONE)
        await harness.clock.advance(10)
        await storage.processes.prune(ended_before_ms=harness.clock.now_ms(), through_cursor=None)
        with pytest.raises(ProcessPruned, match="'p'"):
            await storage.waits.key(PROCESS, CUSTOM)

    @pytest.mark.parametrize("part", ["letter", "payload", "signature", "version", "swapped"])
    async def test_a_tampered_text_is_unknown(self, harness: Harness, part: str) -> None:
        """A key with any change resolves nothing, and waiting for it raises."""
        storage = await placed(await harness.open())
        key, other = await key_of(storage), await key_of(storage, "other")
        await storage.waits.open(key)
        for text in _tampered(part, key.text, other.text):
            await _refused(storage, text)
        assert await storage.waits.get(key) == await storage.waits.open(key)
        assert len(await storage.waits.pending()) == 1

    async def test_no_byte_of_a_key_can_be_altered(self, harness: Harness) -> None:
        """Each byte replaced by each letter, removed, doubled or swapped: the same answer without a statement.

        No wait is resolved by it, neither the one of the key nor another.
        """
        statements: list[str] = []
        storage = await placed(await harness.open(on_statement=statements.append))
        key = await key_of(storage)
        for name in ("approval", "other"):
            await storage.waits.open(await key_of(storage, name))
        await storage.waits.open(key)
        pending = await storage.waits.pending()
        statements.clear()
        altered = set(_altered(key.text)) - {key.text}
        assert len(altered) > len(LETTERS) * len(key.text) // 2
        assert {repr(await storage.waits.resolve(text, YES)) for text in altered} == {repr(UnknownOrRevoked())}
        assert statements == []
        assert await storage.waits.pending() == pending
        assert await storage.waits.resolve(key.text, YES) == Accepted()

    async def test_a_tampered_key_is_unknown(self, harness: Harness) -> None:
        """A key whose fields disagree with its text is refused, whichever field it is."""
        storage = await placed(await harness.open())
        key, other = await key_of(storage), await key_of(storage, "other", PROCESS)
        for name in WaitKey.__struct_fields__:
            await _refused(storage, msgspec.structs.replace(key, **{name: getattr(other, name)}))
        await _refused(storage, msgspec.structs.replace(key, key_id="", text=""))
        assert await storage.waits.resolve(key, YES) == Accepted()

    async def test_junk_is_unknown(self, harness: Harness) -> None:
        """Texts of any shape are answered like a revoked key."""
        storage = await placed(await harness.open())
        for text in JUNK:
            await _refused(storage, text)

    async def test_a_key_of_another_database_is_unknown(self, harness: Harness) -> None:
        """Each database signs with a secret of its own."""
        storage = await placed(await harness.open())
        made = (await key_of(storage, scope=OPERATION)).text
        foreign = made[: made.rindex(".") + 1] + "cGxhaW5seSBub3QgdGhlIHNpZ25hdHVyZSBvZiB0aGlz"[:43]
        await _refused(storage, foreign)

    @pytest.mark.parametrize("bad", BAD_IDS.values(), ids=BAD_IDS)
    async def test_bad_parts_are_refused(self, harness: Harness, bad: Any) -> None:  # noqa: ANN401
        """Blank, oversize and unstorable parts of scopes and waits raise InvalidInput."""
        storage = await placed(await harness.open())
        scopes: list[ExecutionScope] = [
            TurnScope(session_id=bad, turn_id="t"),
            TurnScope(session_id="s", turn_id=bad),
            ProcessScope(process_id=bad),
            OperationScope(operation_id=bad),
        ]
        for scope in scopes:
            with pytest.raises(InvalidInput, match="scope"):
                await storage.waits.key(scope, CUSTOM)
            with pytest.raises(InvalidInput, match="scope"):
                await storage.waits.pending(scope=scope)
        identities: list[WaitIdentity] = [
            ToolCompletion(tool_call_id=bad),
            CustomIdentity(key=bad),
            SignalIdentity(process_id=bad, signal_name="go", ordinal=1),
            SignalIdentity(process_id="p", signal_name=bad, ordinal=1),
        ]
        for identity in identities:
            with pytest.raises(InvalidInput, match="identity"):
                await storage.waits.key(TURN, identity)
        if bad is not None:
            with pytest.raises(InvalidInput):
                await storage.waits.pending(after=bad)
        with pytest.raises(InvalidInput):
            await storage.waits.revoke(bad)

    @pytest.mark.parametrize("bad", [0, -1, 2**63, 1.0, True, "1", None], ids=repr)
    async def test_ordinals_count_from_one(self, harness: Harness, bad: Any) -> None:  # noqa: ANN401
        """An ordinal is an integer from 1 up; anything else is refused."""
        storage = await placed(await harness.open())
        with pytest.raises(InvalidInput, match="ordinal"):
            await storage.waits.key(PROCESS, msgspec.structs.replace(SIGNAL, ordinal=bad))

    @pytest.mark.parametrize("bad", [None, 5, b"lw1.W10.AAAA", ("lw1",), TURN], ids=repr)
    async def test_what_is_no_key_at_all_is_refused(self, harness: Harness, bad: Any) -> None:  # noqa: ANN401
        """A value of another type raises InvalidInput, not the error of a tampered key."""
        storage = await harness.open()
        for call in (storage.waits.open, storage.waits.get, storage.waits.wait, storage.waits.cancel):
            with pytest.raises(InvalidInput):
                await call(bad)
        with pytest.raises(InvalidInput):
            await storage.waits.key(bad if bad is not TURN else CUSTOM, TOOL)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            await storage.waits.key(TURN, bad)

    async def test_the_longest_ids_fit(self, harness: Harness) -> None:
        """Ids of the greatest length, in characters of the most bytes, make keys that work."""
        storage = await harness.open()
        for letter in ("x", "\N{GRINNING FACE}", "\x01"):
            longest = letter * 255
            await created(storage, longest)
            scope = TurnScope(session_id=longest, turn_id=longest)
            identity = SignalIdentity(process_id=longest, signal_name=longest, ordinal=2**63 - 1)
            key = await storage.waits.key(scope, identity)
            assert await storage.waits.resolve(key.text, YES) == Accepted()
            record = await storage.waits.get(key)
            assert record is not None
            assert (record.scope, record.identity) == (scope, identity)


async def _refused(storage: Storage, key: WaitKey | str) -> None:
    """Assert that a key is unknown to every call."""
    assert await storage.waits.resolve(key, YES) == UnknownOrRevoked()
    assert await storage.waits.cancel(key) == UnknownOrRevoked()
    assert await storage.waits.get(key) is None
    for call in (storage.waits.open, storage.waits.wait):
        with pytest.raises(WaitUnknown):
            await call(key)


def _altered(text: str) -> Iterator[str]:
    """Yield every text that differs from a key in one place."""
    for place, letter in enumerate(text):
        yield text[:place] + text[place + 1 :]
        yield text[:place] + letter + text[place:]
        yield text[:place] + text[place : place + 2][::-1] + text[place + 2 :]
        for other in LETTERS:
            yield text[:place] + other + text[place + 1 :]


def _tampered(part: str, text: str, other: str) -> list[str]:
    """Return the text with one part changed, in several ways."""
    version, payload, signature = text.split(".")
    _, other_payload, other_signature = other.split(".")
    match part:
        case "letter":
            return [
                text[:place] + ("B" if text[place] == "A" else "A") + text[place + 1 :] for place in range(len(text))
            ]
        case "payload":
            payloads = (payload[:-1], payload[1:], payload + "A", payload + "=", "", other_payload)
            return [f"{version}.{each}.{signature}" for each in payloads]
        case "signature":
            signatures = (signature[:-1], signature + "A", signature + "=", "", "A" * 43, other_signature, payload)
            return [f"{version}.{payload}.{each}" for each in signatures]
        case "version":
            return [f"{each}.{payload}.{signature}" for each in ("lw0", "lw2", "LW1", "", "lw1 ", " lw1")]
        case _:
            return [f"{version}.{signature}.{payload}", f"{payload}.{version}.{signature}", text + "." + signature]
