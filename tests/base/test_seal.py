"""Sealing alone: what is marked, what is bound to its place, and the keys of AES-GCM."""

from __future__ import annotations

import base64
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import msgspec
import pytest

import lash
from lash.base.codec import decode
from lash.base.compression import unpack_text
from lash.base.seal import PLAIN, SealedField, Seals, is_sealed
from lash.errors import CannotUnseal, ConfigError
from lash.plan import sealed
from lash.plan.sealed import SEALED_COLUMNS
from lash.sqlkit.catalogue import load_catalogue
from tests.factories.sealed import key

NOTE = SealedField("note", ("note_id",))
STATE = SealedField("state", ("note_id",), readable=("owner",))
STRUCTURE = {
    "lash_artifacts": "codec namespace ref",
    "lash_attachment_bytes": "attachment_id codec",
    "lash_attachment_fences": "attachment_id phase sweeper token",
    "lash_attachments": "attachment_id label media_type owner_id owner_kind",
    "lash_batches": "agent batch_id claim_id claim_token delivery lane merge_key slot source_key wake_session_id",
    "lash_blobs": "codec hash",
    "lash_checkpoints": "checkpoint_ref",
    "lash_components": "hash key",
    "lash_dead_letters": "agent batch_id claim_token delivery lane merge_key slot source_key",
    "lash_effect_groups": "group_key scope_id",
    "lash_effects": (
        "envelope_hash group_key incarnation_id owner_id process replay_key scope_id status token traceparent worker"
    ),
    "lash_frames": "frame_id",
    "lash_grants": "frame_id kind label session_id",
    "lash_activity_tails": "epoch",
    "lash_migrations": "name",
    "lash_nodes": "kind node_id parent_node_id",
    "lash_process_change_epoch": "epoch place system_id",
    "lash_process_changes": "kind process_id status",
    "lash_process_events": "event_type payload_hash replay_key status",
    "lash_process_leases": "incarnation_id owner_id process token",
    "lash_process_tombstones": "process_id status",
    "lash_processes": (
        "definition_hash end_payload_hash end_replay_key end_type environment_ref kind label originator_session_id "
        "parent_process_id process_id recovery registration_hash start_payload_hash start_replay_key status "
        "wake_session_id"
    ),
    "lash_acts": "act_id error operator outcome process_id session_id target verb",
    "lash_limit_lines": "key name",
    "lash_limit_places": "holder key name",
    "lash_limits": "key name",
    "lash_records": "codec collection form hash index_1 index_2 index_3 index_4 key",
    "lash_schedules": "key owner_session_id",
    "lash_secrets": "name",
    "lash_session_ids": "session_id",
    "lash_session_labels": "key value",
    "lash_session_leases": "incarnation_id owner_id process token waiting_for",
    "lash_session_wakes": "wake_id",
    "lash_sessions": (
        "agent checkpoint_ref current_frame_id cwd labels leaf_node_id model name owner relation session_id"
    ),
    "lash_source_keys": "batch_id content_hash source_key state",
    "lash_trigger_deliveries": "key owner_session_id process_id state subscription_id",
    "lash_trigger_occurrences": "occurrence_id request_hash",
    "lash_trigger_receipts": "operation_id request_hash",
    "lash_trigger_subscriptions": (
        "definition_hash environment_ref fingerprint key owner_session_id source_key source_type subscription_id"
    ),
    "lash_trigger_tombstones": "key owner_session_id",
    "lash_turns": "commit_hash turn_id",
    "lash_usage": "agent model source",
    "lash_usage_totals": "model source",
    "lash_wakes": "batch_id state target_session_id",
    "lash_waits": "identity key_id scope scope_id",
    "lash_workers": "agents boot_id channel host labels owner_id process processes status version worker_id",
}
"""Columns that stay readable: ids, names, kinds, states, hashes. A new column is either here or is sealed."""


class Note(msgspec.Struct, frozen=True, array_like=True):
    note_id: str
    body: Annotated[str | None, NOTE]
    packed: Annotated[bytes | None, NOTE] = None


class Page(msgspec.Struct, frozen=True, array_like=True):
    first: Note | None
    notes: list[Note]


def test_every_column_is_sealed_or_structure() -> None:
    """Each column of text or bytes, on both backends, is listed on exactly one side."""
    for backend in ("sqlite", "postgres"):
        tables = load_catalogue(f"lash.{backend}.sql").tables
        columns = {
            (table, name)
            for table, found in tables.items()
            for name, column in found.columns.items()
            if column.type.lower() in {"text", "bytea", "blob"}
        }
        values = {(table, name) for table, names in SEALED_COLUMNS.items() for name in names}
        readable = {(table, name) for table, names in STRUCTURE.items() for name in names.split()}
        assert not values & readable
        assert columns <= values | readable
        assert values <= columns


def test_identities_are_columns_of_their_tables() -> None:
    """The columns that identify a value are in its row, and are not sealed themselves."""
    tables = load_catalogue("lash.sqlite.sql").tables
    for table, fields in SEALED_COLUMNS.items():
        for field in fields.values():
            assert set(field.identity) <= tables[table].columns.keys() - fields.keys()


def test_names_of_fields_are_unique() -> None:
    """Two kinds of values never share a place, except for bytes that their hash identifies.

    An event has the same place in a row of its own and in that of its process.
    """
    inline = {sealed.START_EVENT, sealed.END_EVENT, sealed.END_WAKE}
    assert {field.name for field in inline} == {sealed.EVENT.name, sealed.WAKE.name}
    fields = {value for value in vars(sealed).values() if isinstance(value, SealedField)} - inline
    names = [field.name for field in fields if field.name != "bytes"]
    assert len(names) == len(set(names))


def test_a_value_returns_unchanged() -> None:
    """Text, bytes and the rows inside a row are unsealed; what is absent or empty stays so."""
    seals = Seals(key("k"))
    stored = Note("n", seals.text(NOTE, "grüße", "n"), seals.content(NOTE, b"\0\xff", "n"))
    assert is_sealed(stored.body or "")
    assert is_sealed(stored.packed or b"")
    page = seals.open_row(Page(stored, [Note("n", stored.body), Note("m", None), Note("o", "")]))
    assert page == Page(Note("n", "grüße", b"\0\xff"), [Note("n", "grüße"), Note("m", None), Note("o", "")])


def test_without_a_sealer_values_are_the_same_objects() -> None:
    """Nothing is copied or marked."""
    text, content, row = "text", b"bytes", Note("n", "text")
    assert PLAIN.text(NOTE, text, "n") is text
    assert PLAIN.content(NOTE, content, "n") is content
    assert PLAIN.open_row(row) is row


@pytest.mark.parametrize(
    "text",
    [
        "~lash1~ is how it starts",
        "~lash1~grüße",
        '{"sealed":"~lash1~',
        '{"sealed":"~lash1~Zm9v',
        '{"sealed":"~lash1~no base64"}',
    ],
)
def test_a_text_that_looks_sealed_is_kept(text: str) -> None:
    """A person may write the mark; only whole base64 after it, in a whole text, is sealed."""
    seals = Seals(key("k"))
    assert seals.open_text(NOTE, text, "n") == text
    assert not seals.is_current(text)


def test_readable_fields_stay_readable() -> None:
    """A sealed object keeps the fields that queries read, and is unsealed whole."""
    seals, text = Seals(key("k")), '{"outcome":{"value":"secret"},"owner":{"id":"w"}}'
    stored = seals.text(STATE, text, "n")
    assert "secret" not in stored
    assert msgspec.json.decode(stored)["owner"] == {"id": "w"}
    assert seals.open_text(STATE, stored, "n") == text


@pytest.mark.parametrize(
    ("field", "identity"), [(NOTE, ("m",)), (SealedField("other", ("note_id",)), ("n",)), (NOTE, ("n", "n"))]
)
def test_a_value_is_bound_to_its_place(field: SealedField, identity: tuple[str, ...]) -> None:
    """Another identity or another kind does not unseal it."""
    seals = Seals(key("k"))
    with pytest.raises(CannotUnseal, match="does not open the value"):
        seals.open_text(field, seals.text(NOTE, "text", "n"), *identity)


def test_every_byte_is_authenticated() -> None:
    """A sealed value with one changed, missing or added byte is refused, whichever byte it is."""
    sealer = key("k")
    sealed_value = sealer.seal(b"value", b"place")
    changed = [
        sealed_value[:at] + bytes([sealed_value[at] ^ 1]) + sealed_value[at + 1 :] for at in range(len(sealed_value))
    ]
    for each in (*changed, sealed_value[:-1], sealed_value + b"\0", b""):
        with pytest.raises(CannotUnseal):
            sealer.unseal(each, b"place")


def test_equal_values_are_sealed_differently() -> None:
    """An observer does not see that two values are equal."""
    sealer = key("k")
    assert len({sealer.seal(b"value", b"place") for _ in range(100)}) == 100


def test_a_plain_reader_names_the_remedy() -> None:
    """What cannot be decoded because it is sealed raises CannotUnseal and not CorruptData."""
    seals = Seals(key("k"))
    for text in (seals.text(NOTE, '{"a":1}', "n"), seals.text(STATE, '{"a":1}', "n")):
        with pytest.raises(CannotUnseal, match="open it with its sealer"):
            decode(text, dict[str, int], "it")
    with pytest.raises(CannotUnseal):
        unpack_text(seals.content(NOTE, b"packed", "n"), "it")


def test_keys_are_rotated() -> None:
    """The current key seals; values of every key are unsealed; without its key a value is refused by id."""
    old, new = bytes([1]) * 32, bytes([2]) * 32
    before = lash.AesGcm({"old": old})
    both = lash.AesGcm({"new": new, "old": old}, current="new")
    first, second = before.seal(b"1", b"p"), both.seal(b"2", b"p")
    assert [both.unseal(each, b"p") for each in (first, second)] == [b"1", b"2"]
    assert [both.is_current(each) for each in (first, second)] == [False, True]
    with pytest.raises(CannotUnseal, match="unknown key 'new', expected one of 'old'"):
        before.unseal(second, b"p")


@pytest.mark.parametrize(
    ("keys", "current", "problem"),
    [
        ({}, None, "expected current to be one of the 0 keys"),
        ({"a": bytes(32), "b": bytes(32)}, None, "expected current to be one of the 2 keys"),
        ({"a": bytes(32)}, "b", "expected current to be one of the 1 keys, got 'b'"),
        ({"a": bytes(31)}, "a", "key 'a': expected 16, 24 or 32 bytes, got 31 bytes"),
        ({"a": "text"}, "a", "key 'a': expected 16, 24 or 32 bytes, got str"),
        ({"": bytes(32)}, "", "expected the id of a key"),
    ],
)
def test_wrong_keys_are_refused(keys: dict[str, bytes], current: str | None, problem: str) -> None:
    """The error says what was expected, and does not show a key."""
    with pytest.raises(ConfigError, match=problem):
        lash.AesGcm(keys, current=current)


def test_keys_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first key is the current one; a malformed variable is a ConfigError without the key."""
    old, new = base64.b64encode(bytes(32)).decode(), base64.b64encode(bytes([1]) * 32).decode()
    monkeypatch.setenv("LASH_KEYS", f"new:{new}, old:{old}")
    sealer = lash.AesGcm.from_environment()
    assert sealer.is_current(lash.AesGcm({"new": bytes([1]) * 32}).seal(b"", b""))
    for wrong in ("", " , ", "new:not base64", "new"):
        monkeypatch.setenv("LASH_KEYS", wrong)
        with pytest.raises(ConfigError) as refused:
            lash.AesGcm.from_environment()
        assert "not base64" not in str(refused.value) or "'new'" in str(refused.value)


def test_a_sealer_is_used_by_several_threads() -> None:
    """Concurrent calls do not disturb each other."""
    sealer = key("k")

    def round_trip(number: int) -> bool:
        value = str(number).encode() * 50
        return sealer.unseal(sealer.seal(value, b"p"), b"p") == value

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(round_trip, range(400)))
