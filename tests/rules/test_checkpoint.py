"""Rules of checkpoints: what is stored, its ref, and how damage is reported."""

import hashlib
import string

import pytest

from lash.base.compression import BlobRef, Codec, Compression
from lash.errors import CorruptData, InvalidInput
from lash.model.session.checkpoint import CheckpointDraft, CheckpointManifest, TurnState
from lash.model.session.usage import TokenUsage
from lash.plan.session.checkpoint import (
    CheckpointRow,
    ComponentRow,
    CurrentComponent,
    ReplacedComponent,
    change_components,
    check_ref,
    decode_checkpoint,
    decode_component,
    decode_manifest,
    encode_checkpoint,
    manifest_ref,
)
from tests.rules.kit import sha256

ALPHA = BlobRef(sha256(b"alpha"))
BETA = BlobRef(sha256(b"beta"))

MANIFEST = CheckpointManifest(
    turn_state=TurnState(turn_index=3, token_usage=TokenUsage(input_tokens=7), protocol_turn_options={"b": 1, "a": 2}),
    plugin_snapshot_revision=2,
    components={"zeta": ALPHA, "eta": BETA},
)
# Written by hand: fields in the order of their definition, keys sorted, no white space, no defaults.
MANIFEST_TEXT = (
    b'{"turn_state":{"turn_index":3,"token_usage":{"input_tokens":7},"protocol_turn_options":{"a":2,"b":1}},'
    b'"plugin_snapshot_revision":2,'
    b'"components":{"eta":"f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753",'
    b'"zeta":"8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8"}}'
)
# Checked in so that no later version of lash gives an old checkpoint another ref.
GOLDEN = "956b165c48aa8bd5208a6e75068d783d0335901c8f9fcead8ffaa7cd93df768c"


def draft(**components: bytes | BlobRef) -> CheckpointDraft:
    return CheckpointDraft(turn_state=TurnState(turn_index=1), components=components)


def test_the_golden_ref_is_the_hash_of_the_written_manifest() -> None:
    """The checked-in ref is SHA-256 over a version prefix and the manifest written by hand."""
    assert hashlib.sha256(b"lash.checkpoint.v1\0" + MANIFEST_TEXT).hexdigest() == GOLDEN


def test_a_manifest_has_its_golden_ref() -> None:
    """The ref of a checkpoint is the checked-in one, in any order of its components."""
    turned = CheckpointManifest(
        turn_state=MANIFEST.turn_state, plugin_snapshot_revision=2, components={"eta": BETA, "zeta": ALPHA}
    )
    assert manifest_ref(MANIFEST) == GOLDEN
    assert manifest_ref(turned) == GOLDEN


def test_a_draft_becomes_its_manifest_and_its_golden_ref() -> None:
    """Turn state, revision of the plugins and components are all part of the manifest."""
    whole = CheckpointDraft(
        turn_state=MANIFEST.turn_state, plugin_snapshot_revision=2, components={"zeta": b"alpha", "eta": BETA}
    )
    encoded = encode_checkpoint(whole, Compression.LOW_LATENCY)
    assert (encoded.manifest, encoded.ref) == (MANIFEST, GOLDEN)


def test_bytes_are_stored_and_refs_are_required() -> None:
    """Each component is stored by the hash of its bytes, in the order of the keys."""
    encoded = encode_checkpoint(draft(zeta=b"alpha", eta=BETA), Compression.LOW_LATENCY)
    assert list(encoded.manifest.components.items()) == [("eta", BETA), ("zeta", ALPHA)]
    assert encoded.blobs == {ALPHA: (ALPHA, Codec.PLAIN, 5, b"alpha")}
    assert encoded.required_refs == {BETA}
    assert encoded.turn_state == '{"turn_index":1}'


def test_a_checkpoint_is_the_same_however_a_component_was_given() -> None:
    """Bytes and their ref give one manifest and one ref."""
    by_bytes = encode_checkpoint(draft(a=b"alpha", b=b"beta"), Compression.COMPACT)
    by_ref = encode_checkpoint(draft(b=BETA, a=ALPHA), Compression.LOW_LATENCY)
    assert by_bytes.ref == by_ref.ref
    assert by_bytes.manifest == by_ref.manifest
    assert by_ref.blobs == {}


def test_a_ref_whose_bytes_come_along_need_not_resolve() -> None:
    """Bytes in the same checkpoint satisfy its refs, and are stored once."""
    encoded = encode_checkpoint(draft(a=b"alpha", b=ALPHA, c=b"alpha"), Compression.LOW_LATENCY)
    assert encoded.required_refs == frozenset()
    assert list(encoded.blobs) == [ALPHA]


def test_an_empty_checkpoint_is_one_too() -> None:
    """An empty checkpoint stores nothing."""
    encoded = encode_checkpoint(CheckpointDraft(), Compression.BALANCED)
    assert (encoded.turn_state, encoded.blobs, encoded.required_refs) == ("{}", {}, frozenset())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("text", "must be a CheckpointDraft"),
        (CheckpointDraft(components=[b"x"]), "components are a mapping"),  # type: ignore[arg-type]
        (CheckpointDraft(plugin_snapshot_revision=-1), "plugin_snapshot_revision must lie between 0"),
        (CheckpointDraft(turn_state=TurnState(turn_index=-1)), r"turn_state: .*turn_index"),
        (CheckpointDraft(turn_state="x"), "turn_state: "),  # type: ignore[arg-type]
        (CheckpointDraft(components={"": b"x"}), "component key is blank"),
        (CheckpointDraft(components={7: b"x"}), "component key must be text"),  # type: ignore[dict-item]
        (CheckpointDraft(components={"frame:f": b"x"}), "'frame:f' is reserved"),
        (CheckpointDraft(components={"a": "short"}), "component 'a' must be bytes or a ref"),  # type: ignore[dict-item]
        (CheckpointDraft(components={"a": None}), "component 'a' must be bytes or a ref"),  # type: ignore[dict-item]
    ],
)
def test_a_checkpoint_that_cannot_be_stored_is_refused(wrong: CheckpointDraft, message: str) -> None:
    """The error names the wrong part."""
    with pytest.raises(InvalidInput, match=message):
        encode_checkpoint(wrong, Compression.BALANCED)


def test_only_changed_components_are_written() -> None:
    """A removed component ends, a new one begins, a changed one does both, and the rest is not written."""
    current = [CurrentComponent(key, digest) for key, digest in (("same", ALPHA), ("other", ALPHA), ("gone", BETA))]
    changes = change_components(current, {"same": ALPHA, "other": BETA, "new": ALPHA}, keep_ended=True)
    assert changes.ended == ("other", "gone")
    assert changes.begun == (CurrentComponent("other", BETA), CurrentComponent("new", ALPHA))
    assert changes.replaced == ()
    nothing = change_components([], {}, keep_ended=True)
    assert (nothing.ended, nothing.begun, nothing.replaced) == ((), (), ())


def test_a_component_is_replaced_where_nothing_is_kept_of_it() -> None:
    """A changed component is one row with both hashes; a removed one still ends, a new one still begins."""
    current = [CurrentComponent(key, digest) for key, digest in (("same", ALPHA), ("other", ALPHA), ("gone", BETA))]
    changes = change_components(current, {"same": ALPHA, "other": BETA, "new": ALPHA}, keep_ended=False)
    assert changes.ended == ("gone",)
    assert changes.begun == (CurrentComponent("new", ALPHA),)
    assert changes.replaced == (ReplacedComponent("other", BETA, ALPHA),)


def test_a_ref_is_64_lowercase_hex_digits() -> None:
    """A valid ref is returned unchanged, anything else is refused."""
    assert check_ref("ref", "0123456789abcdef" * 4) == "0123456789abcdef" * 4


@pytest.mark.parametrize("wrong", ["a" * 63, "a" * 65, "A" * 64, "g" * 64, "", "a" * 63 + "\n", b"a" * 64, 7, None])
def test_what_is_no_ref_is_refused(wrong: object) -> None:
    """Length, case and alphabet all count."""
    with pytest.raises(InvalidInput, match="ref of 64 lowercase hex digits"):
        check_ref("ref", wrong)


def test_no_other_character_stands_in_a_ref() -> None:
    """Of all printable characters, sixteen are lowercase hex digits."""
    for character in set(string.printable) - set("0123456789abcdef"):
        with pytest.raises(InvalidInput, match="ref of 64 lowercase hex digits"):
            check_ref("ref", character * 64)


TURN_STATE_TEXT = '{"turn_index":3,"token_usage":{"input_tokens":7},"protocol_turn_options":{"a":2,"b":1}}'
ROW = CheckpointRow(9, GOLDEN, TURN_STATE_TEXT, 2)
COMPONENTS = [ComponentRow("zeta", ALPHA, "plain", 5, b"alpha"), ComponentRow("eta", BETA, "plain", 4, b"beta")]


def test_a_stored_checkpoint_is_put_together_with_its_bytes() -> None:
    """Manifest, revision, ref and all bytes come back."""
    checkpoint = decode_checkpoint(ROW, COMPONENTS)
    assert (checkpoint.ref, checkpoint.revision, checkpoint.manifest) == (GOLDEN, 9, MANIFEST)
    assert checkpoint.components == {"zeta": b"alpha", "eta": b"beta"}
    assert decode_manifest(ROW, [CurrentComponent("zeta", ALPHA), CurrentComponent("eta", BETA)]) == MANIFEST
    with pytest.raises(CorruptData):
        decode_manifest(ROW, [CurrentComponent("zeta", ALPHA)])


@pytest.mark.parametrize(
    ("row", "components"),
    [
        (ROW, COMPONENTS[:1]),
        (ROW, [*COMPONENTS, ComponentRow("more", ALPHA, "plain", 5, b"alpha")]),
        (ROW, [ComponentRow("other", ALPHA, "plain", 5, b"alpha"), COMPONENTS[1]]),
        (CheckpointRow(9, GOLDEN, TURN_STATE_TEXT.replace("3", "4"), 2), COMPONENTS),
        (CheckpointRow(9, GOLDEN, TURN_STATE_TEXT, None), COMPONENTS),
        (CheckpointRow(9, "0" * 64, TURN_STATE_TEXT, 2), COMPONENTS),
    ],
    ids=["part missing", "part too many", "key", "turn state", "plugin revision", "ref"],
)
def test_a_checkpoint_that_is_not_the_committed_one_is_corrupt(
    row: CheckpointRow, components: list[ComponentRow]
) -> None:
    """Rows that do not match the ref are never returned."""
    with pytest.raises(CorruptData, match="the checkpoint of revision 9 is not the one that was committed"):
        decode_checkpoint(row, components)


def test_an_unreadable_turn_state_is_corrupt() -> None:
    """The error names the revision."""
    with pytest.raises(CorruptData, match="the turn state of revision 9"):
        decode_checkpoint(CheckpointRow(9, GOLDEN, "{", 2), COMPONENTS)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (ComponentRow("a", ALPHA, None, None, None), "component 'a' names the bytes 8ed3.*missing"),
        (ComponentRow("a", ALPHA, None, 5, b"alpha"), "missing"),
        (ComponentRow("a", ALPHA, "plain", None, b"alpha"), "missing"),
        (ComponentRow("a", ALPHA, "plain", 5, None), "missing"),
        (ComponentRow("a", ALPHA, "lzma", 5, b"alpha"), "unknown codec 'lzma'"),
        (ComponentRow("a", ALPHA, "plain", 5, b"alphb"), "damaged"),
        (ComponentRow("a", ALPHA, "plain", 6, b"alpha"), "damaged"),
        (ComponentRow("a", ALPHA, "zstd", 5, b"alpha"), "cannot be decompressed"),
    ],
)
def test_bytes_that_are_missing_or_damaged_are_corrupt(row: ComponentRow, message: str) -> None:
    """A component without verified bytes is an error, never an absent component."""
    with pytest.raises(CorruptData, match=message):
        decode_component(row)
