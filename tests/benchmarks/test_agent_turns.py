"""The scripted turns of agents, and how the runner measures the turns of a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kit.peer import Contender, PeerFailed, programs
from benchmarks.kit.workspace import workspace
from benchmarks.peers.turn_script import CALLS, content_bytes, result_of, script_digest, scripted, turn_of
from benchmarks.scenarios.agent_turns import Case, Found, one_round


def test_a_turn_is_found_by_its_message_and_its_queries() -> None:
    """The message of the user leads to the script of its turn, and a query to its result."""
    turn = scripted(3, 14)
    assert turn.user.startswith("3 14 ")
    assert turn_of(turn.user) is turn
    assert len(turn.calls) == CALLS == 2
    assert [result_of(call.query) for call in turn.calls] == [call.result for call in turn.calls]
    texts = [
        turn.user,
        turn.calls[0].query,
        turn.calls[0].result,
        turn.calls[1].query,
        turn.calls[1].result,
        turn.reply,
    ]
    assert list(turn.texts) == texts


def test_turns_differ() -> None:
    """Each turn of each conversation has other texts, so that a text in a wrong place is noticed."""
    turns = [scripted(session, number) for session in range(2) for number in range(5)]
    texts = [text for turn in turns for text in turn.texts]
    assert len(set(texts)) == len(texts) == 60
    assert content_bytes(2, range(5)) == sum(map(len, texts))
    assert len({script_digest(0, 5), script_digest(1, 5), script_digest(0, 4)}) == 3


def test_turns_of_lash_are_stored_and_measured(tmp_path: Path) -> None:
    """New and long conversations hold what was said, and a turn takes time and more bytes than its texts."""
    lash, found = Contender(program="lash"), list[Found]()
    with workspace(tmp_path, rounds=1, scale=1) as here, programs("lash") as running:
        for case in (Case(1, 0, 8), Case(2, 101, 8)):
            assert one_round(here, running["lash"], lash, case, found, 0) == found[-1].ms > 0
            assert found[-1].stored_bytes > content_bytes(1, range(8)) / 8


def test_a_program_that_fails_is_reported(tmp_path: Path) -> None:
    """The error of a program that cannot begin is its answer, at once."""
    lost = Contender(program="lash", backend="sqlite", variant="lost")
    with workspace(tmp_path, rounds=1, scale=1) as here, programs("lash") as running:
        with pytest.raises(PeerFailed, match="expected a number of turns, got -1"):
            one_round(here, running["lash"], lost, Case(1, 0, -1), [], 0)
        assert one_round(here, running["lash"], lost, Case(1, 0, 1), [], 0) > 0
