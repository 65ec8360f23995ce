"""Limits of texts and numbers that can be stored anywhere."""

import pytest

from lash.base.limits import (
    are_plain_identifiers,
    check_content,
    check_digest,
    check_identifier,
    check_identifiers,
    check_integer,
    check_limit,
    check_text,
    prefix_end,
    saturating_add,
)
from lash.errors import InvalidInput

MOST = 9_223_372_036_854_775_807
LEAST = -9_223_372_036_854_775_808


@pytest.mark.parametrize("text", ["a", " a ", "é😀", "a" * 255, "😀" * 255, "new\nline"])
def test_an_identifier_is_returned_as_it_is(text: str) -> None:
    """Up to 255 characters of any script are returned unchanged, neither trimmed nor folded."""
    assert check_identifier("id", text) == text


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("", "id is blank"),
        (" \t\n", "id is blank"),
        ("a" * 256, "id has 256 characters; at most 255 are allowed"),
        ("a\0", "id contains a NUL character"),
        ("ab\ud800", "id contains a lone surrogate at position 2"),
        (b"a", "id must be text, not bytes"),
        (None, "id must be text, not NoneType"),
        (1, "id must be text, not int"),
    ],
)
def test_what_cannot_serve_as_an_identifier_is_refused(wrong: object, message: str) -> None:
    """The error names the argument and the fault."""
    with pytest.raises(InvalidInput) as caught:
        check_identifier("id", wrong)
    assert str(caught.value) == message


@pytest.mark.parametrize("wrong", ["", " \t\n", "a" * 256, "a\0", "ab\ud800", "é", b"a", None, 1])
def test_plain_identifiers_are_valid_and_in_ascii(wrong: object) -> None:
    """One that is not valid, or not in ASCII, makes the answer no, wherever it stands."""
    assert are_plain_identifiers()
    assert are_plain_identifiers("a", " a ", "a" * 255, "new\nline")
    assert not are_plain_identifiers(wrong)
    assert not are_plain_identifiers("a", wrong)
    assert not are_plain_identifiers(wrong, "a")


def test_text_may_be_empty_and_longer() -> None:
    """Plain text has a limit of 4,096 characters unless another one is given."""
    assert check_text("name", "") == ""
    assert check_text("name", "a" * 4_096) == "a" * 4_096
    assert check_text("name", "abc", limit=3) == "abc"
    with pytest.raises(InvalidInput, match="name has 4,097 characters; at most 4,096 are allowed"):
        check_text("name", "a" * 4_097)
    with pytest.raises(InvalidInput, match="name has 4 characters; at most 3 are allowed"):
        check_text("name", "abcd", limit=3)


@pytest.mark.parametrize("number", [0, 1, -1, MOST, LEAST])
def test_an_integer_of_64_bits_is_returned(number: int) -> None:
    """Both ends of the range are part of it."""
    assert check_integer("n", number) == number


@pytest.mark.parametrize(("number", "least"), [(MOST + 1, LEAST), (LEAST - 1, LEAST), (-1, 0), (0, 1), (10**40, 0)])
def test_an_integer_out_of_range_is_refused(number: int, least: int) -> None:
    """The error names both bounds."""
    with pytest.raises(InvalidInput) as caught:
        check_integer("n", number, at_least=least)
    assert str(caught.value) == f"n must lie between {least} and {MOST}"


@pytest.mark.parametrize("wrong", [True, False, 1.0, "1", None])
def test_what_is_no_integer_is_refused(wrong: object) -> None:
    """A bool does not count as an integer."""
    with pytest.raises(InvalidInput, match="n must be an integer, not"):
        check_integer("n", wrong)


def test_the_lower_bound_is_allowed() -> None:
    """``at_least`` includes its bound."""
    assert check_integer("n", 1, at_least=1) == 1


def test_addition_stops_at_the_largest_integer() -> None:
    """A sum is clamped to the range of its column."""
    assert saturating_add(2, 3) == 5
    assert saturating_add(MOST - 1, 1) == MOST
    assert saturating_add(MOST, 1) == MOST
    assert saturating_add(MOST, MOST) == MOST


def test_content_is_bytes_of_a_bounded_length() -> None:
    """Bytes are returned unchanged; other types and too many bytes are refused, with the limit."""
    assert check_content("content", b"") == b""
    assert check_content("content", b"1234", limit=4) == b"1234"
    with pytest.raises(InvalidInput, match="content has 5 bytes; at most 4 are allowed"):
        check_content("content", b"12345", limit=4)
    for wrong in ("text", bytearray(b"x"), memoryview(b"x"), None, 5):
        with pytest.raises(InvalidInput, match="content must be bytes, not"):
            check_content("content", wrong)


def test_a_digest_is_64_lowercase_hex_digits() -> None:
    """Anything else is refused: paths, patterns, digits of another script, a trailing line break."""
    digest = "0123456789abcdef" * 4
    assert check_digest("ref", digest) == digest
    for wrong in (
        "",
        digest[:63],
        digest + "0",
        digest.upper(),
        digest[:63] + "\n",
        "../" + digest[3:],
        "\u0660" * 64,
        5,
        None,
    ):
        with pytest.raises(InvalidInput, match="ref must be 64 lowercase hex digits"):
            check_digest("ref", wrong)


def test_a_page_holds_between_one_and_a_thousand() -> None:
    """The bounds themselves are allowed."""
    assert (check_limit(1), check_limit(1_000)) == (1, 1_000)
    with pytest.raises(InvalidInput, match="limit must be at most 1,000"):
        check_limit(1_001)
    for wrong in (0, -1, True, "5"):
        with pytest.raises(InvalidInput, match="limit must"):
            check_limit(wrong)


@pytest.mark.parametrize(
    ("prefix", "end"),
    [
        ("a", "b"),
        ("az\U0010ffff", "a{"),
        ("\U0010ffff", "\U0010ffff" * 256),
        ("", "\U0010ffff" * 256),
        ("\ud7ff", "\ue000"),
        ("ab", "ac"),
    ],
)
def test_the_end_of_a_prefix_is_after_all_that_begin_with_it(prefix: str, end: str) -> None:
    """The last character is raised; one that cannot be is left out, and surrogates are skipped."""
    assert prefix_end(prefix) == end


def test_ids_are_taken_once_each_in_their_order() -> None:
    """Any collection of ids is accepted; a repeated id counts once."""
    assert check_identifiers("node_ids", ["b", "a", "b"]) == ("b", "a")
    assert check_identifiers("node_ids", frozenset({"a"})) == ("a",)
    assert check_identifiers("node_ids", ()) == ()


@pytest.mark.parametrize("wrong", ["abc", b"abc", 7, iter(["a"])])
def test_what_is_no_collection_of_ids_is_refused(wrong: object) -> None:
    """A single id given as text is not treated as a collection of letters."""
    with pytest.raises(InvalidInput, match="node_ids must be a collection of ids"):
        check_identifiers("node_ids", wrong)


def test_a_bad_id_among_good_ones_is_refused() -> None:
    """Every id of the collection is checked."""
    with pytest.raises(InvalidInput, match="node_ids item is blank"):
        check_identifiers("node_ids", ["a", " "])
