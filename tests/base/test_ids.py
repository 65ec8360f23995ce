"""Identifiers have the layout of UUID version 7 and sort by time."""

import time
import uuid

import pytest

from lash.base.ids import new_id


def test_an_id_is_a_uuid_of_version_7() -> None:
    """The standard library reads version 7 and its variant from every id."""
    for _ in range(200):
        text = new_id()
        parsed = uuid.UUID(hex=text)
        assert text == parsed.hex
        assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)


def test_an_id_begins_with_the_milliseconds_of_its_making(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first 48 bits are the time since 1970."""
    monkeypatch.setattr(time, "time_ns", lambda: 0x0123456789AB * 1_000_000 + 999_999)
    assert new_id()[:13] == "0123456789ab7"


def test_later_ids_sort_behind_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids sort as text in the order of their milliseconds, also where the number gets another digit."""
    moments = [0, 1, 15, 16, 255, 256, 10**9, 2**40, 1_750_000_000_000, 2**48 - 1]
    made = []
    for moment in moments:
        monkeypatch.setattr(time, "time_ns", lambda moment=moment: moment * 1_000_000)
        made.append(new_id())
    assert made == sorted(made)
    assert {len(text) for text in made} == {32}


def test_ids_of_one_millisecond_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every bit that is neither time nor layout is random: in 1,000 ids each of the 74 takes both values."""
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    values = [int(new_id(), 16) for _ in range(1_000)]
    assert len(set(values)) == 1_000
    ones, zeros = 0, 0
    for value in values:
        ones, zeros = ones | value, zeros | ~value
    both = ones & zeros
    random_bits = ((1 << 12) - 1) << 64 | (1 << 62) - 1
    assert both == random_bits
