"""Durable waits: promises that are resolved once, from anywhere."""

from __future__ import annotations

from typing import TypeAlias

from lash.model.effect import ExecutionScope
from lash.model.value import JSON, Positive, Value


class _Identity(Value, frozen=True, kw_only=True, tag_field="type"):
    """What is waited for within a scope; the ``type`` key tells which."""


class ToolCompletion(_Identity, frozen=True, kw_only=True, tag="tool_completion"):
    """The end of a tool call that is finished outside."""

    tool_call_id: str


class SignalIdentity(_Identity, frozen=True, kw_only=True, tag="process_signal"):
    """The ``ordinal``-th signal of a name to a process."""

    process_id: str
    signal_name: str
    ordinal: Positive


class CustomIdentity(_Identity, frozen=True, kw_only=True, tag="custom"):
    """Anything that the application waits for."""

    key: str


WaitIdentity: TypeAlias = ToolCompletion | SignalIdentity | CustomIdentity


class WaitKey(Value, frozen=True, kw_only=True):
    """The right to resolve one wait. ``text`` is safe in URLs and to hand to a third party, and cannot be guessed.

    ``generation`` names the life of the session or process: keys of a deleted one never fit a new one of its id.
    """

    scope: ExecutionScope
    identity: WaitIdentity
    generation: str
    key_id: str
    text: str


class _Resolution(Value, frozen=True, kw_only=True, tag_field="status"):
    """How a wait ended; the ``status`` key tells which."""


class Resolved(_Resolution, frozen=True, kw_only=True, tag="ok"):
    value: JSON = None


class Rejected(_Resolution, frozen=True, kw_only=True, tag="err"):
    code: str
    message: str
    raw: JSON = None


class TimedOut(_Resolution, frozen=True, kw_only=True, tag="timeout"):
    """Its deadline passed first."""


class Cancelled(_Resolution, frozen=True, kw_only=True, tag="cancelled"):
    """The one who waited gave up first."""


Resolution: TypeAlias = Resolved | Rejected | TimedOut | Cancelled


class Accepted(Value, frozen=True, kw_only=True, tag_field="status", tag="accepted"):
    """The resolution was the first and stands."""


class AlreadyResolved(Value, frozen=True, kw_only=True, tag_field="status", tag="already_resolved"):
    """Another resolution was first; it stands."""

    terminal: Resolution


class UnknownOrRevoked(Value, frozen=True, kw_only=True, tag_field="status", tag="unknown_or_revoked"):
    """No such wait: a tampered key, one of a deleted session, a revoked one. All alike, on purpose."""


ResolveAnswer: TypeAlias = Accepted | AlreadyResolved | UnknownOrRevoked


class WaitRecord(Value, frozen=True, kw_only=True):
    """One wait as it stands. ``deadline_ms`` is absolute and set once; ``resolution`` is None while it is pending."""

    key_id: str
    scope: ExecutionScope
    identity: WaitIdentity
    deadline_ms: int | None = None
    resolution: Resolution | None = None
    created_at_ms: int
    resolved_at_ms: int | None = None
