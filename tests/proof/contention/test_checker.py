"""The checker accepts valid histories, and refuses each broken one for its own reason."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from tests.proof.contention.checker import judge
from tests.proof.contention.history import (
    AcquireAct,
    Act,
    AppendAct,
    CommitAct,
    EnqueueAct,
    FencedAct,
    OfferAct,
    Operation,
    ReadAct,
    Recorder,
    State,
    paired,
    read_history,
)
from tests.proof.contention.mutations import MUTATIONS, Mutation
from tests.proof.contention.simulation import Simulation
from tests.proof.contention.verdict import Law, Stored, StoredNode, StoredSession

OK, FAIL, UNKNOWN = State.OK, State.FAIL, State.UNKNOWN


def did(start: int, end: int | None, act: Act, state: State = OK, by: str = "a") -> Operation:
    return Operation(process=by, start=start, end=end, state=state, act=act)


def made(
    turn: str, expected: int, leaf: str | None, *, keys: tuple[str, ...] = (), fence: int | None = None
) -> CommitAct:
    """Return an acknowledged commit of one node for each input, or of one node."""
    nodes = tuple(f"{turn}.{number}" for number in range(max(1, len(keys))))
    return CommitAct(
        session="s",
        turn=turn,
        expected=expected,
        seen_leaf=leaf,
        nodes=nodes,
        consumed=keys,
        fencing=fence,
        revision=expected + 1,
    )


def stored(*commits: CommitAct, queued: tuple[str, ...] = (), fencing: int = 0) -> Stored:
    """Return the stored rows after these commits, in order."""
    nodes: list[StoredNode] = []
    for commit in commits:
        for number, node in enumerate(commit.nodes):
            key = commit.consumed[number] if number < len(commit.consumed) else None
            nodes.append(StoredNode(node, nodes[-1].node_id if nodes else None, key))
    turns = {commit.turn: number for number, commit in enumerate(commits, 1)}
    leaf = nodes[-1].node_id if nodes else None
    session = StoredSession(len(commits), leaf, tuple(nodes), turns, queued)
    return Stored(sessions={"s": session}, fences={"session:s": fencing})


def broken(history: list[Operation], kept: Stored) -> set[Law]:
    return {violation.law for violation in judge(history, kept)}


FIRST, SECOND = made("t1", 0, None), made("t2", 1, "t1.0")


def seen(revision: int, leaf: str | None) -> ReadAct:
    return ReadAct(session="s", revision=revision, leaf=leaf)


def test_a_quiet_history_is_accepted() -> None:
    """Two commits, and reads between them, behave like a register."""
    history = [did(1, 2, FIRST), did(3, 4, seen(1, "t1.0")), did(5, 6, SECOND), did(7, 8, seen(2, "t2.0"))]
    assert broken(history, stored(FIRST, SECOND)) == set()


def test_overlapping_calls_may_take_effect_in_any_order() -> None:
    """A read that overlaps a commit may see it or not; one of unknown outcome may be seen first and published late."""
    for answer in (seen(0, None), seen(1, "t1.0")):
        assert broken([did(1, 9, FIRST), did(2, 3, answer)], stored(FIRST)) == set()
    unknown = did(1, None, FIRST, UNKNOWN)
    assert broken([unknown, did(5, 6, seen(0, None)), did(7, 8, seen(1, "t1.0"))], stored(FIRST)) == set()
    assert broken([unknown, did(5, 6, seen(0, None))], stored()) == set()


def test_a_lost_update_is_found() -> None:
    """Two commits on one revision cannot both be acknowledged."""
    rival = made("t9", 0, None)
    assert broken([did(1, 4, FIRST), did(2, 3, rival)], stored(FIRST)) == {Law.REGISTER, Law.TURN}


def test_a_stale_read_is_found() -> None:
    """A read after an acknowledgement sees the commit, and no read sees an older head after a newer one."""
    assert broken([did(1, 2, FIRST), did(3, 4, seen(0, None))], stored(FIRST)) == {Law.REGISTER}
    backwards = [did(1, 9, FIRST), did(2, 3, seen(1, "t1.0")), did(4, 5, seen(0, None))]
    assert broken(backwards, stored(FIRST)) == {Law.REGISTER}


def test_a_conflict_that_was_none_is_found() -> None:
    """A commit is refused only for a revision that the head had meanwhile."""
    refused = CommitAct(session="s", turn="t2", expected=0, seen_leaf=None, nodes=("t2.0",), actual=1)
    assert broken([did(1, 2, FIRST), did(3, 4, refused, FAIL)], stored(FIRST)) == set()
    assert broken([did(1, 2, refused, FAIL), did(3, 4, FIRST)], stored(FIRST)) == {Law.REGISTER}


def test_a_vanished_commit_is_found() -> None:
    """Acknowledged commits are stored; refused ones are not."""
    assert broken([did(1, 2, FIRST), did(3, 4, SECOND)], stored(FIRST)) == {Law.TURN}
    refused = made("t2", 1, "t1.0")
    assert broken([did(1, 2, FIRST), did(3, 4, refused, FAIL)], stored(FIRST, SECOND)) == {
        Law.TURN,
        Law.NOTHING_MADE_UP,
    }


def test_a_repeated_turn_has_one_revision() -> None:
    """A caller that repeats a turn, also after other commits, gets the result of its one commit."""
    again = CommitAct(session="s", turn="t1", expected=2, seen_leaf="t2.0", nodes=("t1.0",), revision=1)
    kept = stored(FIRST, SECOND)
    assert broken([did(1, 2, FIRST), did(3, 4, SECOND), did(5, 6, again)], kept) == set()
    assert broken([did(1, None, FIRST, UNKNOWN), did(3, 4, SECOND), did(5, 6, again)], kept) == set()
    assert broken([did(1, 2, FIRST), did(3, 4, SECOND), did(5, 6, FIRST)], kept) == set()
    lie = CommitAct(session="s", turn="t1", expected=2, seen_leaf="t2.0", nodes=("t1.0",), revision=3)
    assert broken([did(1, 2, FIRST), did(3, 4, SECOND), did(5, 6, lie)], kept) == {Law.TURN}


def test_a_commit_without_nodes_keeps_the_leaf() -> None:
    """The revision grows and the leaf stays."""
    silent = CommitAct(session="s", turn="t2", expected=1, seen_leaf=None, nodes=(), revision=2)
    kept = StoredSession(2, "t1.0", (StoredNode("t1.0", None),), {"t1": 1, "t2": 2})
    history = [did(1, 2, FIRST), did(3, 4, silent), did(5, 6, seen(2, "t1.0"))]
    assert broken(history, Stored(sessions={"s": kept})) == set()


def test_nodes_of_other_inputs_are_found() -> None:
    """A commit that consumes one input and stores another is found."""
    commit = made("t1", 0, None, keys=("x",))
    history = [put(1, 2, "x"), put(1, 2, "y"), did(3, 4, commit)]
    kept = stored(made("t1", 0, None, keys=("y",)), queued=("x",))
    assert broken(history, kept) == {Law.CHAIN}


def test_a_forked_chain_is_found() -> None:
    """Two children of one node, or a head beside the line, are refused."""
    line = stored(FIRST, SECOND).sessions["s"]
    fork = StoredSession(2, line.leaf, (line.nodes[0], StoredNode("t2.0", None)), line.turns)
    beside = StoredSession(2, "t1.0", line.nodes, line.turns)
    for kept in (fork, beside):
        assert broken([did(1, 2, FIRST), did(3, 4, SECOND)], Stored(sessions={"s": kept})) == {Law.CHAIN}


def test_a_torn_commit_is_found() -> None:
    """A commit of unknown outcome must not be stored in part."""
    both = made("t1", 0, None, keys=("x", "y"))
    whole = stored(both).sessions["s"]
    torn = StoredSession(1, "t1.0", whole.nodes[:1], whole.turns)
    history = [put(1, 2, "x"), put(1, 2, "y"), did(3, None, both, UNKNOWN)]
    assert broken(history, Stored(sessions={"s": whole})) == set()
    assert broken(history, Stored(sessions={"s": torn})) == {Law.CHAIN, Law.NOTHING_LOST}


def put(start: int, end: int | None, key: str, *, created: bool = True, state: State = OK) -> Operation:
    return did(start, end, EnqueueAct(session="s", key=key, created=created), state)


def test_double_consumption_is_found() -> None:
    """One input in two commits, or in a commit and in the queue, is refused."""
    one, two = made("t1", 0, None, keys=("x",)), made("t2", 1, "t1.0", keys=("x",))
    history = [put(1, 2, "x"), did(3, 4, one), did(5, 6, two)]
    assert broken(history, stored(one, two)) == {Law.CONSUMED_ONCE}
    assert broken(history[:2], stored(one, queued=("x",))) == {Law.CONSUMED_ONCE}


def test_a_key_that_was_added_twice_is_found() -> None:
    """Of two callers that enqueue under one key, one adds."""
    one = made("t1", 0, None, keys=("x",))
    assert broken([put(1, 2, "x"), put(3, 4, "x", created=False), did(5, 6, one)], stored(one)) == set()
    assert broken([put(1, 2, "x"), put(3, 4, "x"), did(5, 6, one)], stored(one)) == {Law.CONSUMED_ONCE}


def test_a_vanished_message_is_found() -> None:
    """An acknowledged input is stored; one of unknown outcome need not be; an unknown one must not be."""
    kept = stored(FIRST, queued=("x",))
    assert broken([did(1, 2, FIRST), put(3, 4, "x")], kept) == set()
    assert broken([did(1, 2, FIRST), put(3, 4, "x"), put(5, 6, "y")], kept) == {Law.NOTHING_LOST}
    assert broken([did(1, 2, FIRST), put(3, 4, "x"), put(5, None, "y", state=UNKNOWN)], kept) == set()
    assert broken([did(1, 2, FIRST)], kept) == {Law.NOTHING_MADE_UP}


def test_overtaking_is_found() -> None:
    """An input that was acknowledged before another began is consumed before it."""
    swapped = stored(made("t1", 0, None, keys=("y", "x")))
    commit = did(7, 8, made("t1", 0, None, keys=("y", "x")))
    assert broken([put(1, 2, "x"), put(3, 4, "y"), commit], swapped) == {Law.ORDER}
    assert broken([put(1, 4, "x"), put(2, 3, "y"), commit], swapped) == set()


def took(start: int, end: int, fencing: int, token: str | None = None, by: str = "a") -> Operation:
    return did(start, end, AcquireAct(subject="session:s", fencing=fencing, token=token or f"{by}{fencing}"), by=by)


def test_fences_that_do_not_grow_are_found() -> None:
    """A number is given to one acquisition, and never a smaller one after a larger."""
    assert broken([took(1, 2, 1), took(3, 4, 1), took(5, 6, 2)], stored(fencing=2)) == set()
    assert broken([took(1, 2, 1), took(3, 4, 1, by="b")], stored(fencing=1)) == {Law.FENCES_GROW}
    assert broken([took(1, 2, 2), took(3, 4, 1, by="b")], stored(fencing=2)) == {Law.FENCES_GROW}
    assert broken([took(1, 2, 2)], stored(fencing=1)) == {Law.FENCES_GROW}


def test_a_stale_fence_is_found() -> None:
    """Nothing is accepted under a fence once a larger one was given, and no commit returns to an older fence."""
    old, new = made("t1", 0, None, fence=1), made("t2", 1, "t1.0", fence=2)
    leases = [took(1, 2, 1), took(3, 4, 2, by="b")]
    assert broken([*leases, did(5, 6, old)], stored(old, fencing=2)) == {Law.STALE_FENCE}
    renewal = did(5, 6, FencedAct(subject="session:s", fencing=1, what="renew"))
    assert broken([*leases, renewal], stored(fencing=2)) == {Law.STALE_FENCE}
    late = made("t3", 2, "t2.0", fence=1)
    overlapping = [took(1, 20, 1), took(2, 21, 2), did(3, 22, old), did(4, 23, new), did(5, 24, late)]
    assert broken(overlapping, stored(old, new, late, fencing=2)) == {Law.STALE_FENCE}


def test_an_old_holder_may_be_told_of_the_turn_that_its_heir_committed() -> None:
    """Repeating a turn without the lease is safe, as it changes nothing; being its only commit is not."""
    old, new = made("t1", 0, None, fence=1), made("t1", 0, None, fence=2)
    leases = [took(1, 2, 1), took(3, 4, 2, by="b")]
    assert broken([*leases, did(5, 6, new), did(7, 8, old)], stored(new, fencing=2)) == set()
    assert broken([*leases, did(5, 8, new), did(6, 7, old)], stored(new, fencing=2)) == set()
    assert broken([*leases, did(5, 6, new, FAIL), did(7, 8, old)], stored(old, fencing=2)) == {Law.STALE_FENCE}


def completed(start: int, end: int, fencing: int, outcome: str, state: State = OK) -> Operation:
    act = FencedAct(subject="process:p", fencing=fencing, what="complete", outcome=outcome)
    return did(start, end, act, state)


def test_repeating_the_outcome_of_a_process_needs_no_lease() -> None:
    """An old holder may repeat the outcome that the new holder recorded: the repetition writes nothing.

    Recording an outcome first, or another outcome than the stored one, needs the lease.
    """
    leases = [
        did(1, 2, AcquireAct(subject="process:p", fencing=1, token="a")),
        did(3, 4, AcquireAct(subject="process:p", fencing=2, token="b"), by="b"),
    ]
    kept = Stored(fences={"process:p": 2})
    assert broken([*leases, completed(5, 6, 2, "x"), completed(7, 8, 1, "x")], kept) == set()
    assert broken([*leases, completed(5, 8, 2, "x"), completed(6, 7, 1, "x")], kept) == set()
    unknown = did(5, None, completed(5, 6, 2, "x").act, UNKNOWN)
    assert broken([*leases, unknown, completed(7, 8, 1, "x")], kept) == set()

    assert broken([*leases, completed(5, 6, 1, "x")], kept) == {Law.STALE_FENCE}
    assert broken([*leases, completed(5, 6, 1, "x"), completed(7, 8, 2, "x")], kept) == {Law.STALE_FENCE}
    assert broken([*leases, completed(5, 6, 2, "x", FAIL), completed(7, 8, 1, "x")], kept) == {Law.STALE_FENCE}
    other = [*leases, completed(5, 6, 2, "x"), completed(7, 8, 1, "y")]
    assert broken(other, kept) == {Law.STALE_FENCE, Law.SET_ONCE}
    assert broken([leases[0], completed(5, 6, 1, "x"), completed(7, 8, 1, "y")], kept) == {Law.SET_ONCE}


def offered(value: str, standing: str | None, *, won: bool = False, state: State = OK) -> Operation:
    return did(1, 2, OfferAct(cell="c", value=value, standing=standing, won=won), state)


def test_a_second_outcome_is_found() -> None:
    """All callers get the same value, which one of them offered, and at most one of them is accepted."""
    kept = Stored(cells={"c": "x"})
    assert broken([offered("x", "x", won=True), offered("y", "x")], kept) == set()
    assert broken([offered("x", None, state=UNKNOWN), offered("y", "x")], kept) == set()
    assert broken([offered("x", "x", won=True), offered("y", "y", won=True)], kept) == {Law.SET_ONCE}
    assert broken([offered("x", "x", won=True), offered("x", "x", won=True)], kept) == {Law.SET_ONCE}
    assert broken([offered("y", "x")], kept) == {Law.NOTHING_MADE_UP}
    assert broken([offered("x", "x", won=True)], Stored()) == {Law.SET_ONCE, Law.NOTHING_MADE_UP}


def test_what_is_forgotten_had_one_value() -> None:
    """For values that do not last, only the results are compared."""
    said = [did(1, 2, OfferAct(cell="c", value=value, standing="x", lasting=False)) for value in ("x", "y")]
    assert broken(said, Stored()) == set()
    other = did(1, 2, OfferAct(cell="c", value="y", standing="y", lasting=False))
    assert broken([*said, other], Stored()) == {Law.SET_ONCE}


def appended(start: int, payload: str, sequence: int | None, state: State = OK) -> Operation:
    return did(start, start + 1, AppendAct(process="p", payload=payload, sequence=sequence), state)


def test_a_broken_log_is_found() -> None:
    """Events have their numbers, once, in the order of their acknowledgement; refused events are absent."""
    both = [appended(1, "x", 1), appended(3, "y", 3)]
    assert broken(both, Stored(logs={"p": ("x", None, "y")})) == set()
    assert broken(both, Stored(logs={"p": ("x", None)})) == {Law.LOG}
    assert broken(both, Stored(logs={"p": ("x", None, "y", "x")})) == {Law.LOG, Law.ORDER}
    swapped = [appended(1, "y", 3), appended(3, "x", 1)]
    assert broken(swapped, Stored(logs={"p": ("x", None, "y")})) == {Law.ORDER}
    refused = [*both, appended(5, "z", None, FAIL)]
    assert broken(refused, Stored(logs={"p": ("x", None, "y", "z")})) == {Law.NOTHING_MADE_UP}


def test_what_a_killed_process_wrote_is_read(tmp_path: Path) -> None:
    """An act without an end has an unknown outcome, and a truncated last line is ignored."""
    path = tmp_path / "a"
    recorder = Recorder(path, "a")
    recorder.end(recorder.invoke(FIRST), State.OK, FIRST)
    recorder.end(recorder.invoke(SECOND), State.UNKNOWN, SECOND)
    recorder.invoke(seen(0, None))
    recorder.close()
    with path.open("ab") as file:
        file.write(b'{"process":"a","num')
    found = read_history([path])
    assert [(each.state, each.end is None) for each in found] == [(OK, False), (UNKNOWN, True), (UNKNOWN, True)]
    assert [each.act for each in found] == [FIRST, SECOND, seen(0, None)]


def test_an_end_needs_a_beginning() -> None:
    """A history with a missing part is refused."""
    entry = Simulation(1)
    entry.run(200)
    ends = [each for each in entry._entries if each.state is not State.INVOKE]
    with pytest.raises(ValueError, match="never began"):
        paired(ends)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32), steps=st.integers(0, 600))
@example(seed=0, steps=3_000)
def test_valid_histories_are_accepted(seed: int, steps: int) -> None:
    """No history of an atomic storage, with overlapping and dying clients, breaks a law."""
    assert judge(*Simulation(seed).run(steps)) == []


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(seed=st.integers(0, 2**32))
def test_spoiled_histories_are_refused(mutation: Mutation, seed: int) -> None:
    """One false entry anywhere in a valid history is found, under the law that it breaks."""
    spoiled = mutation(random.Random(seed), *Simulation(seed).run(400))
    assume(spoiled is not None)
    assert spoiled is not None
    history, kept, law = spoiled
    assert law in broken(history, kept)
