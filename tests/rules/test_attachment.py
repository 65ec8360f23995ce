"""Rules of the byte guard between puts and sweeps, and of the manifest's rows."""

from __future__ import annotations

import base64
import hashlib
import itertools

import msgspec
import pytest

from lash.base.codec import encode
from lash.errors import AttachmentNotFound, CorruptData, InvalidInput
from lash.model.attachment import AttachmentEntry, AttachmentOwner, OwnerKind
from lash.model.lease import LocalProcess
from lash.model.session.message import AttachmentRef
from lash.plan.attachment import (
    ABANDONED_AFTER_MS,
    AttachmentRow,
    ByteGuardRow,
    BytePhase,
    GuardStep,
    PageKey,
    SweepRun,
    after,
    check_age,
    check_attachment_id,
    check_attachment_ids,
    decode_attachment_page,
    decode_entry,
    decode_line_cursor,
    decode_line_page,
    decode_page_key,
    encode_page_key,
    normal_media_type,
    page_key,
    plan_announcement,
    plan_failed_deletion,
    plan_removal,
    prepare_put,
    sweep_run_of,
    verify,
)

CONTENT = b"content"
ID = hashlib.sha256(CONTENT).hexdigest()
ROW = AttachmentRow(7, "s", ID, "image/png", 7, 3, 4, "a cat", "turn", "t", 100, None)
FENCE = ByteGuardRow(ID, 7, BytePhase.KEPT, 5, "token", None, 1_000)
SWEEPER = SweepRun(sweep_id="sweep", process=LocalProcess(host_id="h", boot_id="b", pid=1, process_start="1"))
HELD = encode(SWEEPER, SweepRun, "sweeper")


def guard(phase: BytePhase, sweeper: str | None = None) -> ByteGuardRow:
    return msgspec.structs.replace(FENCE, phase=phase, sweeper=sweeper)


def move(to: BytePhase) -> GuardStep:
    return GuardStep(attachment_id=ID, version=5, to=to)


def test_phases_are_stored_by_these_names() -> None:
    """A guard closed by another version stays closed."""
    assert [phase.value for phase in (BytePhase.KEPT, BytePhase.CONDEMNED, BytePhase.DELETING)] == [
        "kept",
        "condemned",
        "deleting",
    ]


def test_a_put_makes_keeps_or_revokes_a_fence() -> None:
    """A put creates a guard, changes the version of a kept or condemned one, and waits for a deletion."""
    assert plan_announcement(None) == 1
    assert plan_announcement(guard(BytePhase.KEPT)) == 6
    assert plan_announcement(guard(BytePhase.CONDEMNED)) == 6
    assert plan_announcement(guard(BytePhase.DELETING, HELD)) is None


def test_a_sweep_condemns_before_it_deletes() -> None:
    """A kept guard is condemned, a condemned one deleted by any sweep, each on the version it saw."""
    assert plan_removal(guard(BytePhase.KEPT), sweeper_is_dead=False, now_ms=1_000) == move(BytePhase.CONDEMNED)
    assert plan_removal(guard(BytePhase.CONDEMNED), sweeper_is_dead=False, now_ms=1_000) == move(BytePhase.DELETING)
    assert plan_removal(guard(BytePhase.CONDEMNED, HELD), sweeper_is_dead=False, now_ms=1_000) == move(
        BytePhase.DELETING
    )


def test_a_deletion_is_taken_over_only_when_it_was_given_up() -> None:
    """A sweep takes over a deletion only if it has no holder, its process is dead, or a day has passed."""
    held = guard(BytePhase.DELETING, HELD)
    end = 1_000 + ABANDONED_AFTER_MS
    assert plan_removal(held, sweeper_is_dead=False, now_ms=end - 1) is None
    assert plan_removal(held, sweeper_is_dead=False, now_ms=end) == move(BytePhase.DELETING)
    assert plan_removal(held, sweeper_is_dead=True, now_ms=1_000) == move(BytePhase.DELETING)
    assert plan_removal(guard(BytePhase.DELETING), sweeper_is_dead=False, now_ms=1_000) == move(BytePhase.DELETING)


def test_a_failed_deletion_opens_the_fence_only_if_it_is_over() -> None:
    """A deletion that may still happen keeps puts out; one that certainly failed lets them revoke it."""
    held = guard(BytePhase.DELETING, HELD)
    assert plan_failed_deletion(held, outcome_unknown=True) == move(BytePhase.DELETING)
    assert plan_failed_deletion(held, outcome_unknown=False) == move(BytePhase.CONDEMNED)


def test_a_step_changes_phase_version_and_holder() -> None:
    """The guard after a step is what the database then holds; its life stays the same."""
    assert after(move(BytePhase.DELETING), guard(BytePhase.CONDEMNED), HELD) == ByteGuardRow(
        ID, 7, BytePhase.DELETING, 6, "token", HELD, 1_000
    )


def test_a_fence_names_its_sweeper() -> None:
    """The sweeper is decoded; an empty holder is None, and an invalid one raises CorruptData."""
    assert sweep_run_of(guard(BytePhase.DELETING, HELD)) == SWEEPER
    assert sweep_run_of(FENCE) is None
    with pytest.raises(CorruptData):
        sweep_run_of(guard(BytePhase.DELETING, "{"))


class World:
    """One digest, one putting session and one sweep, step by step, as the databases run them."""

    def __init__(self) -> None:
        self.guard: ByteGuardRow | None = None
        self.named = False
        self.stored = False
        self.lives = 0
        self.seen: ByteGuardRow | None = None
        self.token: str | None = None
        self.put_is_done = False

    def announce(self) -> None:
        version = plan_announcement(self.guard)
        if version is None:
            return
        if self.guard is None:
            self.lives += 1
            self.guard = ByteGuardRow(ID, 7, BytePhase.KEPT, version, f"life {self.lives}", None, 0)
        else:
            self.guard = msgspec.structs.replace(self.guard, phase=BytePhase.KEPT, version=version)
        self.named, self.token = True, self.guard.token

    def write(self) -> None:
        self.stored = self.stored or self.token is not None

    def confirm(self) -> None:
        self.put_is_done = self.named and self.guard is not None and self.guard.token == self.token
        self.token = None

    def take_name(self) -> None:
        self.named = self.named and self.put_is_done

    def look(self) -> None:
        self.seen = None if self.named else self.guard

    def step(self) -> None:
        if self.seen is None:
            return
        planned = plan_removal(self.seen, sweeper_is_dead=True, now_ms=0)
        assert planned is not None
        if self.guard is None or self.guard.version != planned.version or self.named:
            self.seen = None
            return
        self.guard = self.seen = after(planned, self.guard, HELD if planned.to is BytePhase.DELETING else None)

    def delete(self) -> None:
        if self.seen is not None and self.seen.phase is BytePhase.DELETING:
            self.stored = False

    def finish(self) -> None:
        if self.seen is not None and self.seen == self.guard and self.seen.phase is BytePhase.DELETING:
            self.guard = None


PUT = ("announce", "write", "confirm")
SWEEP = ("take_name", "look", "step", "step", "delete", "finish")


@pytest.mark.parametrize("earlier", ["nothing", "condemned", "kept"])
def test_no_order_of_steps_loses_bytes(earlier: str) -> None:
    """However a put, its retry and a sweep interleave, an acknowledged put has its bytes."""
    acknowledged = 0
    steps = (*PUT, *PUT)
    for places in itertools.combinations(range(len(steps) + len(SWEEP)), len(SWEEP)):
        world = World()
        if earlier != "nothing":
            world.guard = ByteGuardRow(ID, 7, BytePhase(earlier), 3, "life 0", None, 0)
            world.stored = True
        puts, sweeps = iter(steps), iter(SWEEP)
        for place in range(len(steps) + len(SWEEP)):
            name = next(sweeps) if place in places else next(puts)
            if name in PUT and world.put_is_done:
                continue
            getattr(world, name)()
        assert world.stored or not world.put_is_done, places
        acknowledged += world.put_is_done
    assert acknowledged > 400


def test_an_order_of_steps_without_the_check_would_lose_bytes() -> None:
    """The search above can fail: without comparing lives, a put would be acknowledged without its bytes."""
    world = World()
    token = None
    for name in ("announce", "write", "take_name", "look", "step", "step", "delete", "finish", "announce"):
        token = world.token
        getattr(world, name)()
    assert world.named
    assert world.token != token
    assert not world.stored


def test_a_page_of_one_session_goes_on_behind_an_id() -> None:
    """The cursor of a page is the last id on it; the last page has none, and invalid ones are refused."""
    later = msgspec.structs.replace(ROW, attachment_id="f" * 64)
    assert decode_line_page([ROW, later], 1).next_cursor == ID
    assert [entry.ref.id for entry in decode_line_page([ROW, later], 1).entries] == [ID]
    assert decode_line_page([ROW, later], 2).next_cursor is None
    four = [msgspec.structs.replace(ROW, attachment_id=digit * 64) for digit in "1234"]
    assert decode_line_page(four, 3).next_cursor == "3" * 64
    assert decode_line_cursor(None) == ""
    assert decode_line_cursor(ID) == ID
    with pytest.raises(InvalidInput, match="cursor"):
        decode_line_cursor("x")


def test_a_put_is_checked_and_described() -> None:
    """The description follows from the bytes and the arguments of the caller."""
    owner = AttachmentOwner(kind=OwnerKind.PROCESS, id="p")
    intent = prepare_put("s", CONTENT, "image/JPG", owner=owner, width=1, height=2, label="x")
    assert intent.ref == AttachmentRef(id=ID, media_type="image/jpeg", byte_len=7, width=1, height=2, label="x")
    assert (intent.session_id, intent.owner, intent.content) == ("s", owner, CONTENT)
    assert prepare_put("s", b"", "a/b").owner is None


@pytest.mark.parametrize(
    "media_type", ["", "image", "image/", "/png", "image/png;q=1", "im age/png", "image/p/ng", "ümage/png", 5]
)
def test_what_is_no_media_type_is_refused(media_type: object) -> None:
    """A media type is type/subtype, without parameters."""
    with pytest.raises(InvalidInput):
        normal_media_type(media_type)


def test_the_longest_media_type() -> None:
    """Type and subtype may have 127 characters each; longer ones are refused for their length."""
    longest = "a" * 127 + "/" + "b" * 127
    assert normal_media_type(longest) == longest
    with pytest.raises(InvalidInput, match="256 characters; at most 255"):
        normal_media_type(longest + "b")


@pytest.mark.parametrize("name", ["width", "height"])
def test_an_image_is_a_pixel_wide_and_high_at_least(name: str) -> None:
    """An impossible image size is refused with its name."""
    assert getattr(prepare_put("s", b"", "a/b", **{name: 1}).ref, name) == 1
    with pytest.raises(InvalidInput, match=name):
        prepare_put("s", b"", "a/b", **{name: 0})


@pytest.mark.parametrize(
    "owner",
    ["turn", AttachmentOwner(kind="job", id="x"), AttachmentOwner(kind=OwnerKind.TURN, id=" ")],  # type: ignore[arg-type]
)
def test_what_is_no_owner_is_refused(owner: object) -> None:
    """An owner is a turn or a process with an id."""
    with pytest.raises(InvalidInput):
        prepare_put("s", b"", "a/b", owner=owner)


def test_ids_are_digests_each_once() -> None:
    """Ids are checked, sorted and counted once; text is not a collection of ids."""
    other = "0" * 64
    assert check_attachment_id(ID) == ID
    assert check_attachment_ids([ID, other, ID]) == tuple(sorted((ID, other)))
    assert check_attachment_ids(set()) == ()
    for bad in (ID, b"x", "", b"", 5, None, ["../x"], [5]):
        with pytest.raises(InvalidInput):
            check_attachment_ids(bad)


def test_an_age_is_a_number_of_milliseconds() -> None:
    """An age is not negative; one beyond the clock's range is clamped."""
    assert [check_age(age) for age in (0, 5)] == [0, 5]
    assert check_age(2**63 - 1) == 2**62
    with pytest.raises(InvalidInput):
        check_age(-1)


def test_a_row_is_a_line_of_the_manifest() -> None:
    """Every column is decoded; an owner has both columns and a known kind."""
    ref = AttachmentRef(id=ID, media_type="image/png", byte_len=7, width=3, height=4, label="a cat")
    owner = AttachmentOwner(kind=OwnerKind.TURN, id="t")
    assert decode_entry(ROW) == AttachmentEntry(session_id="s", ref=ref, owner=owner, intent_at_ms=100)
    assert decode_entry(msgspec.structs.replace(ROW, committed_at_ms=200)).committed_at_ms == 200
    assert decode_entry(msgspec.structs.replace(ROW, owner_kind=None)).owner is None
    assert decode_entry(msgspec.structs.replace(ROW, owner_id=None)).owner is None
    with pytest.raises(CorruptData, match="job"):
        decode_entry(msgspec.structs.replace(ROW, owner_kind="job"))


def test_bytes_must_be_the_ones_that_the_id_names() -> None:
    """Missing bytes are absence only before a commit; other bytes are never returned."""
    entry = decode_entry(ROW)
    stored = verify(entry, CONTENT)
    assert (stored.ref, stored.content) == (entry.ref, CONTENT)
    for damage in (b"conten", b"CONTENT", b""):
        with pytest.raises(CorruptData, match="damaged"):
            verify(entry, damage)
    longer = msgspec.structs.replace(entry, ref=msgspec.structs.replace(entry.ref, byte_len=8))
    with pytest.raises(CorruptData, match="damaged"):
        verify(longer, CONTENT)
    with pytest.raises(AttachmentNotFound):
        verify(entry, None)
    with pytest.raises(CorruptData, match="missing"):
        verify(msgspec.structs.replace(entry, committed_at_ms=200), None)


def test_a_page_ends_where_there_is_no_next_one() -> None:
    """A page has a cursor exactly if one more row was found, and it points to the last row shown."""
    rows = [ROW, msgspec.structs.replace(ROW, intent_at_ms=101)]
    assert decode_attachment_page(rows, 2).next_cursor is None
    page = decode_attachment_page(rows, 1)
    assert [entry.intent_at_ms for entry in page.entries] == [100]
    assert decode_page_key(page.next_cursor) == page_key(ROW) == PageKey(100, ID, 7)
    assert decode_attachment_page([], 1).entries == ()
    four = [msgspec.structs.replace(ROW, session_key=number) for number in range(4)]
    assert decode_page_key(decode_attachment_page(four, 3).next_cursor) == PageKey(100, ID, 2)


def test_a_cursor_is_one_of_ours() -> None:
    """No cursor is the beginning, before every number and text of a column; an invalid one is refused."""
    assert decode_page_key(None) == PageKey(-(2**63), "", 0)
    for text in ("!", "x", "bnVsbA==", encode_page_key(PageKey(2**70, ID, 1)), encode_page_key(PageKey(1, "x", 1))):
        with pytest.raises(InvalidInput):
            decode_page_key(text)
    with pytest.raises(InvalidInput):
        decode_page_key(base64.urlsafe_b64encode(b"\xff\xfe").decode())
