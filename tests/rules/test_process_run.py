"""Rules of running processes, of seeing them, and of lists of processes and changes."""

import base64

import msgspec
import pytest

from lash.errors import Conflict, CorruptData, InvalidInput
from lash.model.lease import LeaseOwner
from lash.model.process.process import (
    AgentScope,
    ChangeKind,
    ChangePage,
    EngineInput,
    Grant,
    GrantEntry,
    ProcessChange,
    ProcessFilter,
    ProcessPage,
    ProcessRecord,
    ProcessRefused,
    ProcessStatus,
    Projection,
    Recovery,
    RefusalReason,
    Registration,
    SessionDetached,
)
from lash.plan.lease import LeaseRow
from lash.plan.process.append import require_abandonable
from lash.plan.process.change import (
    ChangeCursor,
    ChangeRow,
    EventTailRow,
    FeedState,
    decode_change_cursor,
    decode_changes,
    decode_tail,
)
from lash.plan.process.grant import (
    DetachAnswer,
    DetachedRow,
    GrantEntryRow,
    GrantRow,
    check_grant,
    check_process_ids,
    decode_detach,
    decode_grant,
    decode_grant_entry,
    frame_of,
)
from lash.plan.process.lease import refuse_run
from lash.plan.process.process import (
    ListedProcessRow,
    ProcessRow,
    check_agent_scope,
    check_filter,
    decode_process,
    decode_process_cursor,
    decode_process_page,
    encode_process_cursor,
    leading_filter,
    wanted_definition,
)
from tests.rules.kit import FREE_LEASE, OWNER, PROCESS, SESSION, sha256

replace = msgspec.structs.replace

MOST = 9_223_372_036_854_775_807
_FEED = FeedState("e", 0, 0, known=True)
RIVAL = LeaseOwner(owner_id="worker", incarnation_id="second")
LEASE_ROW = LeaseRow(5, "worker", "first", None, "token", 1_000, 2_000)
SCOPE = AgentScope(session_id=SESSION)
FRAME = AgentScope(session_id=SESSION, agent_frame_id="frame")
ROW = ProcessRow(7, PROCESS, "hash", '{"process_id":"process-1","input":{"type":"external"}}', "{}", None, 0, 10, 10)


def record(recovery: Recovery = Recovery.RERUNNABLE, projection: Projection | None = None) -> ProcessRecord:
    return ProcessRecord(
        process_id=PROCESS,
        registration_hash="hash",
        registration=Registration(process_id=PROCESS, input=EngineInput(kind="k"), recovery=recovery),
        projection=projection or Projection(),
        wake_session_id=None,
        last_sequence=0,
        created_at_ms=0,
        updated_at_ms=0,
    )


def cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("recovery", "began", "reason"),
    [
        (Recovery.RERUNNABLE, None, None),
        (Recovery.RERUNNABLE, RIVAL, None),
        (Recovery.OWNER_BOUND, None, None),
        (Recovery.OWNER_BOUND, OWNER, None),
        (Recovery.OWNER_BOUND, RIVAL, RefusalReason.OWNER_BOUND),
        (Recovery.EXTERNAL, None, RefusalReason.EXTERNAL),
        (Recovery.EXTERNAL, OWNER, RefusalReason.EXTERNAL),
    ],
)
def test_who_may_run_a_process(recovery: Recovery, began: LeaseOwner | None, reason: RefusalReason | None) -> None:
    """Any owner may run a rerunnable process, only the first owner a bound one, and none an external one."""
    refused = refuse_run(record(recovery, Projection(started_by=began)), OWNER)
    assert refused == (None if reason is None else ProcessRefused(reason=reason))


@pytest.mark.parametrize("recovery", Recovery)
@pytest.mark.parametrize("status", [status for status in ProcessStatus if status is not ProcessStatus.RUNNING])
def test_nobody_runs_what_has_ended(recovery: Recovery, status: ProcessStatus) -> None:
    """The end is reported before any other reason."""
    ended = record(recovery, Projection(status=status, started_by=RIVAL))
    assert refuse_run(ended, OWNER) == ProcessRefused(reason=RefusalReason.TERMINAL)


ASKED = Projection(abandon_requested=True)


@pytest.mark.parametrize(
    ("projection", "now_ms", "message"),
    [
        (Projection(), 2_000, "was not asked to be abandoned; call request_abandon first"),
        (Projection(), 1_999, "was not asked to be abandoned; call request_abandon first"),
        (ASKED, 1_999, "is being run; its lease must expire before it is abandoned"),
    ],
)
def test_a_process_is_not_given_up_unasked_or_while_it_is_run(
    projection: Projection, now_ms: int, message: str
) -> None:
    """Time alone never ends a process, and a process with a live lease cannot be abandoned."""
    with pytest.raises(Conflict, match=f"^process 'process-1' {message}$"):
        require_abandonable(record(projection=projection), LEASE_ROW, now_ms)


def test_a_process_can_be_given_up_once_nobody_runs_it() -> None:
    """It can be abandoned once its lease lapsed or was released; an ended one is left to the append."""
    require_abandonable(record(projection=ASKED), LEASE_ROW, 2_000)
    require_abandonable(record(projection=ASKED), FREE_LEASE, 0)
    require_abandonable(record(projection=Projection(status=ProcessStatus.ABANDONED)), LEASE_ROW, 0)


def test_ids_are_a_collection_of_different_ones() -> None:
    """Their order is kept, and an empty collection is allowed."""
    assert check_process_ids(["b", "a"]) == ("b", "a")
    assert check_process_ids(()) == ()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("abc", "process_ids must be a collection of ids, not str"),
        (b"abc", "process_ids must be a collection of ids, not bytes"),
        (iter(["a"]), "process_ids must be a collection of ids, not list_iterator"),
        (None, "process_ids must be a collection of ids, not NoneType"),
        (["a", ""], "process_ids item is blank"),
        (["a", "b", "a"], "process_ids names a process twice"),
    ],
)
def test_what_are_no_ids_is_refused(wrong: object, message: str) -> None:
    """A single text is not treated as its letters."""
    with pytest.raises(InvalidInput, match=message):
        check_process_ids(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (SESSION, "grant.scope must be an AgentScope, not str"),
        (AgentScope(session_id=""), "grant.scope.session_id is blank"),
        (AgentScope(session_id="s", agent_frame_id=""), "grant.scope.agent_frame_id is blank"),
    ],
)
def test_what_is_no_scope_is_refused(wrong: AgentScope, message: str) -> None:
    """An invalid scope is refused alone and in a grant; an empty frame does not mean the whole session."""
    with pytest.raises(InvalidInput, match=message):
        check_agent_scope("grant.scope", wrong)
    with pytest.raises(InvalidInput, match=message):
        check_grant(Grant(scope=wrong, process_id="p"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (SCOPE, "expected a Grant, got AgentScope"),
        (Grant(scope=SCOPE, process_id=" "), "grant.process_id is blank"),
        (Grant(scope=SCOPE, process_id="p", kind="x" * 256), "grant.kind has 256 characters"),
        (Grant(scope=SCOPE, process_id="p", label="\0"), "grant.label contains a NUL"),
    ],
)
def test_grants_that_cannot_be_stored_are_refused(wrong: object, message: str) -> None:
    """An invalid grant is refused before any read."""
    with pytest.raises(InvalidInput, match=message):
        check_grant(wrong)


def test_grants_are_stored_by_session_and_frame() -> None:
    """The whole session is a separate scope beside its frames."""
    whole, framed = Grant(scope=SCOPE, process_id="p"), Grant(scope=FRAME, process_id="p", kind="k", label="")
    assert [check_grant(grant) for grant in (whole, framed)] == [whole, framed]
    assert [check_agent_scope("scope", scope) for scope in (SCOPE, FRAME)] == [SCOPE, FRAME]
    assert [frame_of(SCOPE), frame_of(FRAME)] == ["", "frame"]
    assert decode_grant(GrantRow(SESSION, "", "p", None, None)) == whole
    assert decode_grant(GrantRow(SESSION, "frame", "p", "k", "")) == framed


def test_a_grant_is_listed_with_its_process() -> None:
    """One row has both the grant and its process."""
    row = GrantEntryRow(SESSION, "frame", PROCESS, "k", "l", *msgspec.structs.astuple(ROW))
    grant = Grant(scope=FRAME, process_id=PROCESS, kind="k", label="l")
    assert decode_grant_entry(row) == GrantEntry(grant=grant, record=decode_process(ROW))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"status": "running"}, "expected a ProcessFilter, got dict"),
        (ProcessFilter(status="running"), "status must be one of running, completed, failed, cancelled, abandoned"),  # type: ignore[arg-type]
        (ProcessFilter(waiting="yes"), "waiting must be true, false or None, not 'yes'"),  # type: ignore[arg-type]
        (ProcessFilter(parked=1), "parked must be true, false or None, not 1"),  # type: ignore[arg-type]
        (ProcessFilter(kind="\0"), "kind contains a NUL"),
        (ProcessFilter(label="x" * 256), "label has 256 characters"),
        (ProcessFilter(originator_session_id=7), "originator_session_id must be text"),  # type: ignore[arg-type]
        (ProcessFilter(wake_session_id="\ud800"), "wake_session_id contains a lone surrogate"),
        (ProcessFilter(created_after_ms=2**63), "created_after_ms must lie between"),
        (ProcessFilter(created_before_ms=1.5), "created_before_ms must be an integer"),  # type: ignore[arg-type]
        (ProcessFilter(definition={"a": object()}), "filter.definition.a is of type object"),
        (ProcessFilter(process_id=" "), "process_id"),
        (ProcessFilter(parent_process_id="x" * 256), "parent_process_id has 256 characters"),
    ],
)
def test_filters_that_cannot_be_used_are_refused(wrong: object, message: str) -> None:
    """A misspelt filter is refused, not ignored."""
    with pytest.raises(InvalidInput, match=message):
        check_filter(wrong)


@pytest.mark.parametrize(
    "wanted",
    [
        ProcessFilter(),
        ProcessFilter(definition=None),
        ProcessFilter(
            process_id="p",
            status=ProcessStatus.RUNNING,
            waiting=False,
            parked=False,
            kind="k",
            label="",
            definition={"v": 1},
            originator_session_id="s",
            wake_session_id="s",
            created_after_ms=0,
            created_before_ms=MOST,
        ),
        ProcessFilter(kind="x" * 255, label="x" * 255, originator_session_id="x" * 255, wake_session_id="x" * 255),
    ],
)
def test_usable_filters_are_returned(wanted: ProcessFilter) -> None:
    """A valid filter is returned unchanged."""
    assert check_filter(wanted) is wanted


def test_what_is_parked_is_running() -> None:
    """A filter for parked processes is read by the index of running ones, unless it names a status."""
    assert check_filter(ProcessFilter(parked=True)) == ProcessFilter(parked=True, status=ProcessStatus.RUNNING)
    for wanted in (ProcessFilter(parked=False), ProcessFilter(parked=True, status=ProcessStatus.FAILED)):
        assert check_filter(wanted) is wanted


def test_a_list_is_read_by_what_narrows_most() -> None:
    """Each filter leads unless a narrower one is given; not waiting narrows nothing."""
    wanted = ProcessFilter(waiting=False, created_after_ms=1)
    assert leading_filter(ProcessFilter()) == leading_filter(wanted) == "all"
    for name, change in (
        ("status", {"status": ProcessStatus.RUNNING}),
        ("waiting", {"waiting": True}),
        ("kind", {"kind": "k"}),
        ("label", {"label": "l"}),
        ("originator", {"originator_session_id": "s"}),
        ("wake", {"wake_session_id": "s"}),
        ("parent", {"parent_process_id": "p"}),
        ("definition", {"definition": None}),
        ("id", {"process_id": "p"}),
    ):
        wanted = replace(wanted, **change)
        assert leading_filter(wanted) == name


def test_a_definition_is_asked_for_by_its_hash() -> None:
    """A filter for no definition matches nothing, unlike the absence of a filter."""
    assert wanted_definition(ProcessFilter()) is None
    assert wanted_definition(ProcessFilter(definition={"b": 1, "a": 2})) == sha256(b'{"a":2,"b":1}')
    assert wanted_definition(ProcessFilter(definition=None)) == "none"


def test_a_page_holds_what_was_asked_for_and_the_way_on() -> None:
    """One row more than the limit means that there is more; the cursor is behind the last row shown."""
    rows = [ListedProcessRow(**msgspec.structs.asdict(replace(ROW, process_key=key)), state=None) for key in (9, 8, 7)]
    shown = decode_process(ROW)
    assert decode_process_page(rows, 2) == ProcessPage(processes=(shown,) * 2, next_cursor=cursor("p1:8"))
    assert decode_process_page(rows, 1) == ProcessPage(processes=(shown,), next_cursor=cursor("p1:9"))
    assert decode_process_page(rows, 3) == ProcessPage(processes=(shown,) * 3)
    assert decode_process_page([], 3) == ProcessPage(processes=())


@pytest.mark.parametrize("key", [0, 1, MOST])
def test_a_cursor_leads_back_to_its_place(key: int) -> None:
    """A cursor decodes to its position, and has this text."""
    assert encode_process_cursor(key) == cursor(f"p1:{key}")
    assert decode_process_cursor(cursor(f"p1:{key}")) == key


def test_no_cursor_is_the_beginning() -> None:
    """Without a cursor, lists and the feed start at the beginning."""
    assert decode_process_cursor(None) is None
    assert decode_change_cursor(None) == ChangeCursor(0, 0, None)


@pytest.mark.parametrize(
    "wrong",
    [
        *("x", "ä", "p1:1", cursor("p1"), cursor("p1:"), cursor("p1:x"), cursor("p2:1"), cursor("c1:1:1"), cursor(":")),
        *(cursor("c1:1"), cursor("c1::"), cursor("c1:1:x"), cursor("c1:1:1:1"), cursor("c2:1:1")),
        *(cursor("c2:e:1"), cursor("c2:e::"), cursor("c2:e:1:x"), cursor("c2:e:f:1:1"), cursor("c3:e:1:1")),
    ],
)
def test_what_is_no_cursor_is_refused(wrong: str) -> None:
    """A cursor of the other kind is refused too."""
    if wrong != cursor("c1:1:1"):
        with pytest.raises(InvalidInput, match="expected a cursor of the change feed"):
            decode_change_cursor(wrong)
    with pytest.raises(InvalidInput, match="expected a cursor of a list of processes"):
        decode_process_cursor(wrong)


@pytest.mark.parametrize("number", [-1, 2**63])
def test_a_cursor_beyond_all_places_is_refused(number: int) -> None:
    """A cursor out of range is refused before any read."""
    for read, text in (
        (decode_process_cursor, f"p1:{number}"),
        (decode_change_cursor, f"c1:{number}:0"),
        (decode_change_cursor, f"c1:0:{number}"),
        (decode_change_cursor, f"c2:e:{number}:0"),
        (decode_change_cursor, f"c2:e:0:{number}"),
    ):
        with pytest.raises(InvalidInput, match="cursor must lie between 0"):
            read(cursor(text))
    with pytest.raises(InvalidInput, match="cursor is blank"):
        decode_process_cursor(" ")


def test_changes_are_read_with_the_place_behind_them() -> None:
    """Registrations, events and prunings are decoded, each with its subject."""
    rows = [
        ChangeRow(1, "p", "registered", None, "running", 3),
        ChangeRow(2, "p", "event", 4, "completed", 3),
        ChangeRow(9, "q", "pruned", None, None, 5),
    ]
    page = decode_changes(rows, ChangeCursor(1, 1, "e"), _FEED)
    assert page == ChangePage(
        changes=(
            ProcessChange(process_id="p", kind=ChangeKind.REGISTERED, status=ProcessStatus.RUNNING),
            ProcessChange(process_id="p", kind=ChangeKind.EVENT, sequence=4, status=ProcessStatus.COMPLETED),
            ProcessChange(process_id="q", kind=ChangeKind.PRUNED),
        ),
        cursor=cursor("c2:e:5:9"),
    )
    assert decode_change_cursor(page.cursor) == ChangeCursor(transaction_id=5, seq=9, epoch="e")


def test_an_empty_page_stays_where_it_was() -> None:
    """Reading again from its cursor misses nothing."""
    assert decode_changes([], ChangeCursor(3, 4, "e"), _FEED) == ChangePage(changes=(), cursor=cursor("c2:e:3:4"))


@pytest.mark.parametrize("damaged", [ChangeRow(4, "p", "wat", None, None), ChangeRow(4, "p", "event", 1, "wat")])
def test_damaged_changes_are_reported_as_damage(damaged: ChangeRow) -> None:
    """The error names the unreadable change."""
    with pytest.raises(CorruptData, match=r"^change 4 of process 'p' cannot be read: 'wat'"):
        decode_changes([damaged], ChangeCursor(0, 0), _FEED)


def test_a_session_is_cut_off_and_nothing_else() -> None:
    """A process without another grant is orphaned, others are preserved, both in the order of their ids."""
    rows = [DetachedRow("d", False), DetachedRow("c", True), DetachedRow("b", False), DetachedRow("a", True)]
    assert decode_detach(SESSION, DetachAnswer(5, 2, rows)) == SessionDetached(
        session_id=SESSION,
        revoked_grant_count=5,
        cleared_wake_target_count=2,
        orphaned_process_ids=("b", "d"),
        preserved_process_ids=("a", "c"),
    )
    assert decode_detach(SESSION, DetachAnswer(0, 0, [])) == SessionDetached(session_id=SESSION)


def test_a_tail_is_events_and_the_place_behind_them() -> None:
    """Events of any processes are decoded, and the cursor is behind the last of them."""
    rows = [
        EventTailRow(7, "p", 1, "note", None, "hash", '{"payload":1}', None, 50, 3),
        EventTailRow(9, "q", 4, "note", "key", "hash", '{"payload":null}', None, 60, 4),
    ]
    page = decode_tail(rows, ChangeCursor(0, 0), _FEED)
    assert [(each.process_id, each.sequence, each.payload, each.replay_key) for each in page.events] == [
        ("p", 1, 1, None),
        ("q", 4, None, "key"),
    ]
    assert decode_change_cursor(page.cursor) == ChangeCursor(4, 9, "e")
    assert decode_tail([], ChangeCursor(4, 9, "e"), _FEED).cursor == page.cursor
