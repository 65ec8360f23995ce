"""Components whose bytes are replaced in place."""

from __future__ import annotations

from typing import Final

import pytest

from lash.base.compression import BlobRef, Codec, StoredBlob
from lash.plan.session.component import Replacement, replacements

A, B, C, D = (BlobRef(letter * 64) for letter in "abcd")


def blob(ref: BlobRef) -> StoredBlob:
    return StoredBlob(ref, Codec.PLAIN, 1, ref[:1].encode())


SIMPLE: Final = {
    "nothing": ({}, {}, (), ()),
    "the same": ({"k": A}, {"k": A}, (), ()),
    "the same bytes again": ({"k": A}, {"k": A}, (A,), ()),
    "new bytes": ({"k": A}, {"k": B}, (B,), ((A, B),)),
    "beside an unchanged one": ({"k": A, "l": C}, {"k": B, "l": C}, (B,), ((A, B),)),
    "two": ({"k": A, "l": B}, {"k": C, "l": D}, (D, C), ((A, C), (B, D))),
}
MORE: Final = {
    "a new component": ({}, {"k": A}, (A,)),
    "one that goes": ({"k": A}, {}, ()),
    "another one": ({"k": A}, {"l": A}, ()),
    "bytes of an earlier commit": ({"k": A}, {"k": B}, ()),
    "bytes of another component": ({"k": A, "l": B}, {"k": B, "l": B}, (B,)),
    "bytes moved between keys": ({"k": A, "l": B}, {"k": B, "l": A}, (A, B)),
    "old bytes that another still has": ({"k": A, "l": A}, {"k": B, "l": A}, (B,)),
    "old bytes that two had": ({"k": A, "l": A}, {"k": B, "l": C}, (B, C)),
    "new bytes that two get": ({"k": A, "l": B}, {"k": C, "l": C}, (C,)),
}


@pytest.mark.parametrize("case", SIMPLE)
def test_bytes_in_the_place_of_others(case: str) -> None:
    """If only bytes of components change, each change names the old and the new hash."""
    before, after, brought, expected = SIMPLE[case]
    found = replacements(before, after, [blob(ref) for ref in brought])
    assert found == tuple(Replacement(old, blob(new)) for old, new in expected)


@pytest.mark.parametrize("case", MORE)
def test_more_than_bytes(case: str) -> None:
    """New or removed components, and shared or unknown bytes, need a statement that reads."""
    before, after, brought = MORE[case]
    assert replacements(before, after, [blob(ref) for ref in brought]) is None
