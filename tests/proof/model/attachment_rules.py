"""Rules about attachments: put, stamp, forget and sweep, beside sessions that come, go and are forked."""

from __future__ import annotations

import hashlib
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import invariant

from lash.model.attachment import AttachmentEntry, AttachmentOwner, OwnerKind, SweepReport
from lash.model.session.commit import Commit
from lash.model.session.created import CreatedSession
from tests.proof.model.attachment_model import ALIVE, GONE, UNKNOWN, Attachments, without_reasons
from tests.proof.model.base_rules import session_ids
from tests.proof.model.kit import action
from tests.proof.model.session_rules import SessionRules
from tests.proof.model.world import Side, World

CONTENTS: Final = {"a": b"a", "b": b"bb", "c": b"c" * 5_000}
IDS: Final = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}
contents: Final = st.sampled_from(tuple(CONTENTS))
OWNERS_OF: Final = {
    "no owner": None,
    **{each: AttachmentOwner(kind=OwnerKind.TURN, id=each) for each in (ALIVE, GONE, UNKNOWN)},
}
ages: Final = st.sampled_from((0, 0, 500, 5_000))


class AttachmentRules(SessionRules):
    """All operations on attachments."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.attachments = Attachments(self.sessions)
        self.histories.check_attachments = lambda commit: self.attachments.check(commit.session_id, commit.attachments)

    def settle(self, commit: Commit) -> None:
        super().settle(commit)
        self.attachments.stamp(commit.session_id, commit.attachments)

    @action(
        8,
        session_id=session_ids,
        name=contents,
        media_type=st.sampled_from(("image/png", "text/plain")),
        owner=st.sampled_from(tuple(OWNERS_OF)),
        label=st.sampled_from((None, "l")),
    )
    def put(self, session_id: str, name: str, media_type: str, owner: str, label: str | None) -> None:
        content, who = CONTENTS[name], OWNERS_OF[owner]
        self.touched = session_id
        self.step(
            "put",
            lambda side: side.storage.attachments.put(session_id, content, media_type, owner=who, label=label),
            lambda _: self.attachments.put(session_id, content, media_type, who, label),
        )

    @action(4, session_id=session_ids, name=contents)
    def get(self, session_id: str, name: str) -> None:
        self.touched = session_id
        self.step(
            "get",
            lambda side: side.storage.attachments.get(session_id, IDS[name]),
            lambda _: self.attachments.get(session_id, IDS[name]),
        )

    @action(3, session_id=session_ids, names=st.sampled_from(("a", "b", "ab", "abc")))
    def stamp(self, session_id: str, names: str) -> None:
        wanted = [IDS[name] for name in names]
        self.touched = session_id
        self.step(
            "stamp",
            lambda side: side.storage.attachments.commit_refs(session_id, wanted),
            lambda _: self.attachments.stamp(session_id, wanted),
        )

    @action(3, session_id=session_ids, names=st.sampled_from(("a", "b", "ab")))
    def commit_attachments(self, session_id: str, names: str) -> None:
        state = self.sessions.live.get(session_id)
        self.touched = session_id
        self.commit_it(
            "commit attachments",
            Commit(
                session_id=session_id,
                expected_revision=0 if state is None else state.revision,
                attachments=tuple(IDS[name] for name in names),
            ),
        )

    @action(2, session_id=session_ids, name=contents)
    def forget(self, session_id: str, name: str) -> None:
        self.touched = session_id
        gone = self.step(
            "forget",
            lambda side: side.storage.attachments.forget(session_id, IDS[name]),
            lambda _: self.attachments.of(session_id).pop(IDS[name], None) is not None,
        )
        if gone is not None:
            self.count("forget:gone" if gone else "forget:not there")

    @action(4, age_ms=ages, dry_run=st.booleans())
    def sweep(self, age_ms: int, dry_run: bool) -> None:  # noqa: FBT001 (drawn by name)
        report = self.step(
            "sweep",
            lambda side: _sweep(side, age_ms, dry_run=dry_run),
            lambda _: self.attachments.sweep(age_ms, dry_run=dry_run),
        )
        assert report is not None
        for what in ("swept", "kept", "refused", "deleted"):
            if getattr(report, what):
                self.count(f"sweep:{what}")

    @action(1, age_ms=ages)
    def list_uncommitted(self, age_ms: int) -> None:
        self.look(
            "list_uncommitted", lambda side: _uncommitted(side, age_ms), tuple(self.attachments.uncommitted(age_ms))
        )

    @invariant()
    def the_manifest_is_the_model(self) -> None:
        """Every row of the session that was used last."""
        if self.touched in self.sessions.live:
            lines = self.attachments.of(self.touched)
            expected = tuple(lines[attachment_id] for attachment_id in sorted(lines))
            self.look("attachments", lambda side: _lines(side, self.touched), expected)

    def forked(self, source_id: str, new_id: str, node_id: str | None, got: CreatedSession | None) -> CreatedSession:
        made = super().forked(source_id, new_id, node_id, got)
        # A fork of a session without a commit starts empty.
        if made.created and self.histories.of(source_id).saved is not None:
            self.attachments.inherit(self.attachments.of(source_id), new_id)
        return made


async def _sweep(side: Side, age_ms: int, *, dry_run: bool) -> SweepReport:
    async def is_gone(entry: AttachmentEntry) -> bool:
        if entry.owner is None:
            return True
        if entry.owner.id == UNKNOWN:
            raise RuntimeError("who knows")
        return entry.owner.id == GONE

    return without_reasons(await side.storage.attachments.sweep(age_ms, is_gone, dry_run=dry_run))


async def _lines(side: Side, session_id: str) -> tuple[AttachmentEntry, ...]:
    return (await side.storage.attachments.list(session_id)).entries


async def _uncommitted(side: Side, age_ms: int) -> tuple[AttachmentEntry, ...]:
    return (await side.storage.attachments.list_uncommitted(age_ms)).entries
