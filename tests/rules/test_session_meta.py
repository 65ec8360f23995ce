"""Rules of a session's metadata: checks, and the stored form."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from lash.errors import CorruptData, InvalidInput, SessionBindingMismatch
from lash.model.causal import TurnCause
from lash.model.session.session import ChildRelation, Retention, RootRelation, SessionMeta
from lash.plan.session.meta import (
    GivenMeta,
    MetaChange,
    MetaRow,
    decode_meta,
    edit_change,
    encode_meta,
    kept_of,
    label_terms,
    new_meta,
    save_change,
)
from tests.rules.kit import SESSION

replace = msgspec.structs.replace

META = SessionMeta(
    session_id=SESSION,
    name="A chat",
    created_at_ms=50,
    model="large",
    cwd="/tmp",
    owner="ada",
    labels={"b": "2", "a": "1"},
    metadata={"x": [1]},
    expires_at_ms=70,
    retention=Retention.last(3),
)
META_ROW = MetaRow(
    *(7, SESSION, "A chat", 50, "large", "/tmp", '{"relation":{"kind":"root"}}', 4, "hello", 2, 99),
    *("ada", '{"a":"1","b":"2"}', '{"metadata":{"x":[1]}}', 70, "helper", 3),
)


CHILD = ChildRelation(parent_session_id="p", caused_by=TurnCause(session_id="p", turn_id="t"))
CHILD_TEXT = (
    '{"relation":{"kind":"child","parent_session_id":"p","caused_by":{"type":"turn","session_id":"p","turn_id":"t"}}}'
)


def test_a_new_session_is_named_after_its_id_unless_it_has_a_name() -> None:
    """An empty name is a name."""
    plain = new_meta(SESSION, GivenMeta())
    assert plain == SessionMeta(session_id=SESSION, name=SESSION, created_at_ms=0)
    named = new_meta(
        SESSION, GivenMeta(name="", model="large", cwd="/tmp", relation=CHILD, owner="ada", labels={"a": "b"})
    )
    assert (named.name, named.model, named.cwd, named.relation) == ("", "large", "/tmp", CHILD)
    full = new_meta(SESSION, GivenMeta(metadata={"x": 1}, expires_at_ms=5, retention=Retention.all()))
    assert (full.retention, plain.retention) == (Retention.all(), None)
    assert (named.owner, named.labels, full.metadata, full.expires_at_ms) == ("ada", {"a": "b"}, {"x": 1}, 5)
    with pytest.raises(InvalidInput, match="session_id is blank"):
        new_meta("", GivenMeta())


def test_the_relation_is_stored_with_its_kind() -> None:
    """A tag distinguishes root and child."""
    assert encode_meta(META, SESSION).relation == '{"relation":{"kind":"root"}}'
    assert encode_meta(replace(META, model="m" * 255), SESSION).relation == '{"relation":{"kind":"root"}}'
    assert encode_meta(replace(META, relation=CHILD, cwd=None), SESSION).relation == CHILD_TEXT


def test_metadata_is_read_back_as_it_was_written() -> None:
    """Every column is decoded to its field, and the relation to its type."""
    assert decode_meta(META_ROW) == META
    assert decode_meta(replace(META_ROW, relation=CHILD_TEXT, cwd=None)) == replace(META, relation=CHILD, cwd=None)
    assert decode_meta(META_ROW).relation == RootRelation()


def test_an_unreadable_relation_is_corrupt() -> None:
    """An unknown kind of relation is reported with the session."""
    with pytest.raises(CorruptData, match="the relation of session 'session-1'"):
        decode_meta(replace(META_ROW, relation='{"relation":{"kind":"cousin"}}'))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("text", "expected a SessionMeta, got str"),
        (replace(META, session_id=""), "session_id is blank"),
        (replace(META, name="n" * 4_097), "name has 4,097 characters"),
        (replace(META, name=None), "name must be text"),
        (replace(META, model="m" * 256), "model has 256 characters"),
        (replace(META, created_at_ms=2**63), "created_at_ms must lie between"),
        (replace(META, cwd="\0"), "cwd contains a NUL"),
        (replace(META, relation="root"), "relation: "),
        (replace(META, owner=" "), "owner is blank"),
        (replace(META, expires_at_ms=-1), "expires_at_ms must lie between 0"),
        (replace(META, labels=[]), "expected labels as a dict of texts, got list"),
        (replace(META, labels={"": "x"}), "a label is blank"),
        (replace(META, labels={"k": "v" * 256}), "label 'k' has 256 characters"),
        (replace(META, labels={str(each): "" for each in range(33)}), "at most 32 labels, not 33"),
        (replace(META, metadata="x"), "expected metadata as a dict, got str"),
        (replace(META, metadata={"x": "é" * 32_762}), "metadata is larger than 65,536 bytes"),
        (replace(META, metadata={"x": 1j}), "metadata"),
    ],
)
def test_metadata_that_cannot_be_stored_is_refused(wrong: SessionMeta, message: str) -> None:
    """The error names the field."""
    with pytest.raises(InvalidInput, match=message):
        encode_meta(wrong, SESSION)


def test_metadata_of_another_session_is_refused() -> None:
    """A handle serves its own session only."""
    with pytest.raises(SessionBindingMismatch) as caught:
        encode_meta(META, "other")
    assert (caught.value.bound_session_id, caught.value.attempted_session_id) == ("other", SESSION)


def test_times_before_1970_are_times() -> None:
    """A negative creation time is stored like any other."""
    assert encode_meta(replace(META, created_at_ms=-(2**63)), SESSION).relation == '{"relation":{"kind":"root"}}'


def test_what_fits_exactly_is_stored() -> None:
    """32 labels, values of 255 characters and metadata of 65,536 bytes are accepted."""
    labels = {str(each): "v" * 255 for each in range(32)}
    metadata = {"x": "y" * (65_536 - len('{"metadata":{"x":""}}'))}
    encoded = encode_meta(replace(META, labels=labels, metadata=metadata, expires_at_ms=0, owner=None), SESSION)
    assert (len(encoded.terms), len(encoded.metadata)) == (32, 65_536)


def test_labels_and_the_owner_are_found_by_terms() -> None:
    """The owner has the empty key, which no label can have; labels are stored in the order of their keys."""
    encoded = encode_meta(META, SESSION)
    assert encoded.terms == {"": "ada", "a": "1", "b": "2"}
    assert (encoded.labels, encoded.metadata) == ('{"a":"1","b":"2"}', '{"metadata":{"x":[1]}}')
    assert label_terms(None, {"a": "1"}) == {"a": "1"}
    bare = encode_meta(replace(META, labels={}, metadata={}, owner=None), SESSION)
    assert (bare.terms, bare.labels, bare.metadata) == ({}, "{}", "{}")


@pytest.mark.parametrize(
    ("damaged", "what"), [({"labels": '{"a":1}'}, "the labels of"), ({"metadata": "[]"}, "the metadata of")]
)
def test_unreadable_metadata_is_corrupt(damaged: dict[str, str], what: str) -> None:
    """Labels and metadata of another form are reported with the session."""
    with pytest.raises(CorruptData, match=f"{what} session 'session-1'"):
        decode_meta(replace(META_ROW, **damaged))


def test_saving_changes_everything() -> None:
    """The change that overwrites all metadata has every part."""
    assert save_change(encode_meta(META, SESSION)) == MetaChange(
        session_id=SESSION,
        name="A chat",
        created_at_ms=50,
        model="large",
        relation='{"relation":{"kind":"root"}}',
        labels='{"a":"1","b":"2"}',
        metadata='{"metadata":{"x":[1]}}',
        set_cwd=True,
        cwd="/tmp",
        set_owner=True,
        owner="ada",
        set_expiry=True,
        expires_at_ms=70,
        set_keep=True,
        keep=3,
        terms={"": "ada", "a": "1", "b": "2"},
    )


NOTHING: dict[str, Any] = dict.fromkeys(("name", "owner", "labels", "metadata", "expires_at_ms"), UNSET)


@pytest.mark.parametrize(
    ("given", "change"),
    [
        ({}, {}),
        ({"name": "n"}, {"name": "n"}),
        ({"owner": "ada"}, {"set_owner": True, "owner": "ada", "terms": {"": "ada"}}),
        ({"owner": None}, {"set_owner": True}),
        ({"labels": {"k": "v"}}, {"labels": '{"k":"v"}', "terms": {"k": "v"}}),
        ({"labels": {}}, {"labels": "{}"}),
        ({"metadata": {"x": 1}}, {"metadata": '{"metadata":{"x":1}}'}),
        ({"expires_at_ms": 5}, {"set_expiry": True, "expires_at_ms": 5}),
        ({"expires_at_ms": None}, {"set_expiry": True}),
        ({"retention": Retention.all()}, {"set_keep": True, "keep": 0}),
        ({"retention": Retention.last(4)}, {"set_keep": True, "keep": 4}),
        ({"retention": None}, {"set_keep": True}),
    ],
)
def test_an_edit_changes_what_is_given(given: dict[str, Any], change: dict[str, Any]) -> None:
    """A part that is not given stays; None removes the owner or the expiry."""
    assert edit_change(SESSION, **{**NOTHING, **given}) == MetaChange(session_id=SESSION, **change)


@pytest.mark.parametrize(
    "wrong",
    [{"name": "\0"}, {"owner": ""}, {"labels": 7}, {"metadata": None}, {"expires_at_ms": 1.5}, {"retention": 3}],
)
def test_a_wrong_edit_is_refused(wrong: dict[str, Any]) -> None:
    """The error names the part."""
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        edit_change(SESSION, **{**NOTHING, **wrong})


@pytest.mark.parametrize(
    ("keep", "storage", "kept"), [(None, 2, 2), (None, None, None), (0, 2, None), (5, 2, 5), (1, None, 1)]
)
def test_a_session_keeps_what_it_says_or_else_what_the_storage_says(
    keep: int | None, storage: int | None, kept: int | None
) -> None:
    """The retention of a session wins over that of the storage; 0 stands for all."""
    assert kept_of(keep, Retention(keep=storage)) == kept


def test_an_unknown_retention_is_refused() -> None:
    """A number is not a retention; all checkpoints are stored as 0, which no count is."""
    with pytest.raises(InvalidInput, match="expected a Retention as retention, got int; use Retention"):
        encode_meta(replace(META, retention=3), SESSION)
    assert encode_meta(replace(META, retention=Retention.all()), SESSION).keep == 0
    assert decode_meta(replace(META_ROW, keep_checkpoints=0)).retention == Retention.all()
    assert decode_meta(replace(META_ROW, keep_checkpoints=None)).retention is None
