"""The text of notifications: what changed, for all storages, and assigned work, for one worker."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import msgspec

from lash.base.shapes import read_json
from lash.plan.process.process import ProcessRow
from lash.stores.hints import ANYTHING, NO_TAGS, NOTHING_ASSIGNED, Assigned, Hint, Tags

_WORDS: Final = {(True, True): "process", (True, False): "log", (False, True): "other", (False, False): "activity"}
"""The first word: whether processes changed, and whether there may be work."""
_KINDS: Final[dict[str, tuple[bool, bool]]] = {word: kind for kind, word in _WORDS.items()}
_VERSION: Final = "2"
_UNNAMED: Final = "2*"
"""The version of a text that does not name all work."""
_ANY: Final = "*"
_NOTHING: Final = "-"
_FIELDS: Final = 7
"""The version, the word, four sets of tags, and the work that was assigned."""
_OLD_FIELDS: Final = 4
"""The word, one tag and two sets of tags, as versions before the registry of workers send them."""
BEAT: Final = "beat"
"""The text that lets workers beat."""
_Work: TypeAlias = tuple[frozenset[str], frozenset[str], list[ProcessRow]]
_LONGEST_WORK: Final = 10_000
"""How many characters the text of assigned work has at most; ids can be long."""
MOST_NAMED: Final = 64
"""How many sessions and processes with work one notification names; beyond that the duty worker polls."""


class Notification(NamedTuple):
    """A hint for all storages, and the sessions and processes that may be ready."""

    hint: Hint
    work: bool
    """Whether there may be work."""
    unnamed: bool = False
    """Whether there may be work that is not named."""
    sessions: frozenset[str] = NO_TAGS
    processes: frozenset[str] = NO_TAGS

    def merged(self, other: Notification) -> Notification:
        sessions, processes = self.sessions | other.sessions, self.processes | other.processes
        hint, work = self.hint.merged(other.hint), self.work or other.work
        if len(sessions) + len(processes) > MOST_NAMED:
            return Notification(hint, work, unnamed=True)
        return Notification(hint, work, self.unnamed or other.unnamed, sessions, processes)

    @property
    def text(self) -> str:
        """The text without the work that is assigned, which the database adds."""
        hint = self.hint
        tags = (hint.processes, hint.ended) if hint.process else (NO_TAGS, NO_TAGS)
        sets = " ".join(_write_tags(each) for each in (*tags, hint.queued, hint.changed))
        return f"{_UNNAMED if self.unnamed else _VERSION} {_WORDS[hint.process, self.work]} {sets}"

    @property
    def whole_text(self) -> str:
        """The text of a notification that assigns nothing."""
        return f"{self.text} {_NOTHING}"


def parse(text: str) -> Notification:
    """Return what another storage sent; a text of another version is about anything."""
    if text == BEAT:
        return Notification(Hint(assigned=NOTHING_ASSIGNED, beat=True), work=False)
    parts = text.split(" ")
    if len(parts) == _OLD_FIELDS and parts[0] in _KINDS:
        process, work = _KINDS[parts[0]]
        return Notification(Hint(process, _read_tags(parts[2]), _read_tags(parts[3]), parts[1] or None), work, work)
    if len(parts) != _FIELDS or parts[0] not in (_VERSION, _UNNAMED) or parts[1] not in _KINDS:
        return Notification(ANYTHING, work=True, unnamed=True)
    process, work = _KINDS[parts[1]]
    processes, ended, queued, changed = (_read_tags(part) for part in parts[2:6])
    dispatched = NO_TAGS if parts[6] == _NOTHING else frozenset(parts[6].split(","))
    ready = next(iter(queued)) if queued is not None and len(queued) == 1 and changed == NO_TAGS else None
    hint = Hint(process, queued, changed, ready, processes, ended, None, dispatched)
    return Notification(hint, work, parts[0] == _UNNAMED)


def for_duty(notification: Notification) -> Hint:
    """Return what a duty worker does about a notification: poll for unnamed work, watch over assigned work."""
    hint = notification.hint
    taken = {f"s{tag}" for tag in hint.changed or ()} | {f"p{tag}" for tag in (hint.process and hint.processes) or ()}
    if notification.unnamed:
        return ANYTHING._replace(dispatched=hint.dispatched, taken=frozenset(taken), beat=hint.beat)
    return Hint(assigned=NOTHING_ASSIGNED, dispatched=hint.dispatched, taken=frozenset(taken), beat=hint.beat)


def parse_assigned(text: str) -> tuple[Hint, list[ProcessRow]]:
    """Return the hint of a notification for one worker, and rows that it can claim; the unknown asks for a poll."""
    word, _, work = text.partition(" ")
    if word != "work":
        return ANYTHING._replace(beat=word == BEAT), []
    try:
        sessions, processes, rows = read_json(work, _Work)
    except msgspec.DecodeError:
        return ANYTHING, []
    return Hint(assigned=Assigned(sessions, processes)), rows


def assigned_text(assigned: Assigned) -> str:
    """Return the text that assigns work to one worker; it lets the worker poll if that would be too long."""
    work = (assigned.sessions, assigned.processes, ())
    text = f"work {msgspec.json.encode(work).decode()}"
    return text if len(text) <= _LONGEST_WORK else "poll"


def _write_tags(tags: Tags) -> str:
    return _ANY if tags is None else ",".join(sorted(tags))


def _read_tags(text: str) -> Tags:
    if text == _ANY:
        return None
    return frozenset(text.split(",")) if text else NO_TAGS
