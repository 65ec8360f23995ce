"""Rules of token usage: how it is checked, summed and decoded."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lash.errors import InvalidInput
from lash.model.session.usage import TokenUsage, UsageEntry
from lash.plan.session.usage import UsageRow, decode_usage, encode_usage, merge_usage, require_room

replace = msgspec.structs.replace
MOST = 9_223_372_036_854_775_807


def entry(source: str = "turn", model: str = "large", **counters: int) -> UsageEntry:
    return UsageEntry(source=source, model=model, usage=TokenUsage(**counters))


def test_each_counting_entry_becomes_a_row() -> None:
    """Four counters are stored separately; an entry without tokens leaves no row."""
    full = entry(input_tokens=1, output_tokens=2, cached_input_tokens=3, reasoning_tokens=4)
    assert encode_usage((full, entry("idle"))) == (UsageRow("turn", "large", 1, 2, 3, 4),)


@pytest.mark.parametrize("counter", ["input_tokens", "output_tokens", "cached_input_tokens", "reasoning_tokens"])
def test_a_single_counter_is_enough_for_a_row(counter: str) -> None:
    """Usage that was only cached counts like any other."""
    usage = msgspec.convert({counter: 9}, TokenUsage)
    (row,) = encode_usage((UsageEntry(source="turn", model="large", usage=usage),))
    assert sorted(row.counters) == [0, 0, 0, 9]
    assert getattr(row, counter) == 9


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("text", r"usage\[1\] must be a UsageEntry"),
        (UsageEntry(source="s", model="m", usage=None), r"usage\[1\] must be a UsageEntry"),  # type: ignore[arg-type]
        (entry(source="\0"), r"usage\[1\]\.source contains a NUL"),
        (entry(source="s" * 256), r"usage\[1\]\.source has 256 characters"),
        (entry(model="m" * 256), r"usage\[1\]\.model has 256 characters"),
        (entry(input_tokens=-1), r"usage\[1\]\.input_tokens must lie between 0"),
        (entry(output_tokens=MOST + 1), r"usage\[1\]\.output_tokens must lie between 0"),
        (entry(cached_input_tokens=1.5), r"usage\[1\]\.cached_input_tokens must be an integer"),  # type: ignore[arg-type]
        (entry(reasoning_tokens=True), r"usage\[1\]\.reasoning_tokens must be an integer"),
    ],
)
def test_usage_that_cannot_be_stored_is_refused_by_its_path(wrong: UsageEntry, message: str) -> None:
    """The error names the entry and the field."""
    with pytest.raises(InvalidInput, match=message):
        encode_usage((entry(input_tokens=1), wrong))


@pytest.mark.parametrize("counter", ["input_tokens", "output_tokens", "cached_input_tokens", "reasoning_tokens"])
def test_no_counter_goes_backwards(counter: str) -> None:
    """A negative counter is refused by its name."""
    with pytest.raises(InvalidInput, match=rf"usage\[0\]\.{counter} must lie between 0 and {MOST}"):
        encode_usage((UsageEntry(source="turn", model="large", usage=replace(TokenUsage(), **{counter: -1})),))


def test_the_longest_names_fit() -> None:
    """Source and model may have 255 characters."""
    (row,) = encode_usage((entry("s" * 255, "m" * 255, input_tokens=1),))
    assert (row.source, row.model) == ("s" * 255, "m" * 255)


def test_rows_are_summed_by_source_and_model() -> None:
    """Pairs stay in the order in which they were first seen."""
    rows = [
        UsageRow("b", "x", 1, 2, 3, 4),
        UsageRow("a", "x", 1, 0, 0, 0),
        UsageRow("b", "x", 10, 20, 30, 40),
        UsageRow("b", "y", 0, 0, 0, 5),
    ]
    assert merge_usage(rows) == (
        UsageRow("b", "x", 11, 22, 33, 44),
        UsageRow("a", "x", 1, 0, 0, 0),
        UsageRow("b", "y", 0, 0, 0, 5),
    )
    assert merge_usage([]) == ()


counts = st.integers(0, 2**62)
rows_of_usage = st.builds(UsageRow, st.sampled_from("ab"), st.sampled_from("xyz"), counts, counts, counts, counts)


@settings(max_examples=60, deadline=None)
@given(st.lists(rows_of_usage, max_size=20))
def test_merging_loses_and_invents_no_token(rows: list[UsageRow]) -> None:
    """Every counter of every pair adds up, and every pair appears once."""
    expected: Counter[tuple[str, str, str]] = Counter()
    for row in rows:
        for name in ("input_tokens", "output_tokens", "cached_input_tokens", "reasoning_tokens"):
            expected[row.source, row.model, name] += getattr(row, name)
    merged = merge_usage(rows)
    actual = {
        (row.source, row.model, name): getattr(row, name)
        for row in merged
        for name in ("input_tokens", "output_tokens", "cached_input_tokens", "reasoning_tokens")
    }
    assert actual == dict(expected)
    assert len(merged) == len({(row.source, row.model) for row in rows})


def test_a_total_must_fit_its_column() -> None:
    """The largest total is accepted, one more is refused by source and model."""
    require_room([UsageRow("turn", "large", MOST, 0, 0, MOST)])
    with pytest.raises(InvalidInput, match=f"usage of 'turn' on 'large' exceeds {MOST}"):
        require_room([UsageRow("a", "b", 1, 1, 1, 1), UsageRow("turn", "large", 0, 0, MOST + 1, 0)])


def test_totals_are_read_as_a_ledger() -> None:
    """Each row is one entry with its four counters."""
    assert decode_usage([UsageRow("turn", "large", 1, 2, 3, 4)]) == (
        entry(input_tokens=1, output_tokens=2, cached_input_tokens=3, reasoning_tokens=4),
    )
