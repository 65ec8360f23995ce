"""Durable waits: promises that are resolved once, from anywhere."""

from __future__ import annotations

from typing import TypeAlias

from lash.model.effect import ExecutionScope
from lash.model.value import JSON, JSONObject, Positive, Value


class _Identity(Value, frozen=True, kw_only=True, tag_field="type"):
    """What a wait is for, unique within its scope; the ``type`` key is the kind."""


class ToolCompletion(_Identity, frozen=True, kw_only=True, tag="tool_completion"):
    """The end of a tool call that another system finishes."""

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
    """The right to resolve one wait. ``text`` is safe in URLs, can be given to a third party and cannot be guessed.

    ``generation`` identifies one life of the session or process: a key never matches a later one of the same id.
    """

    scope: ExecutionScope
    identity: WaitIdentity
    generation: str
    key_id: str
    text: str


class _Resolution(Value, frozen=True, kw_only=True, tag_field="status"):
    """How a wait ended; the ``status`` key is the kind."""


class Resolved(_Resolution, frozen=True, kw_only=True, tag="ok"):
    value: JSON = None


class Rejected(_Resolution, frozen=True, kw_only=True, tag="err"):
    code: str
    message: str
    raw: JSON = None


class TimedOut(_Resolution, frozen=True, kw_only=True, tag="timeout"):
    """The deadline passed before a resolution."""


class Cancelled(_Resolution, frozen=True, kw_only=True, tag="cancelled"):
    """The wait was cancelled before a resolution."""


Resolution: TypeAlias = Resolved | Rejected | TimedOut | Cancelled


class Accepted(Value, frozen=True, kw_only=True, tag_field="status", tag="accepted"):
    """This resolution was the first one and is stored."""


class AlreadyResolved(Value, frozen=True, kw_only=True, tag_field="status", tag="already_resolved"):
    """Another resolution was the first one; it stays."""

    terminal: Resolution


class UnknownOrRevoked(Value, frozen=True, kw_only=True, tag_field="status", tag="unknown_or_revoked"):
    """The key is tampered with, revoked, or of a deleted session; the answer deliberately does not say which."""


ResolveAnswer: TypeAlias = Accepted | AlreadyResolved | UnknownOrRevoked


class Question(Value, frozen=True, kw_only=True):
    """What a wait asks of the person who resolves it."""

    text: str
    schema: JSONObject | None = None
    """A JSON schema of the answer, from which a form can be made; an answer that does not match it is refused."""
    details: JSON = None
    """What the person should know, such as the arguments of a tool call."""


class WaitRecord(Value, frozen=True, kw_only=True):
    """The current state of a wait. ``deadline_ms`` is absolute and set once; ``resolution`` is None while pending."""

    key_id: str
    scope: ExecutionScope
    identity: WaitIdentity
    ask: Question | None = None
    deadline_ms: int | None = None
    resolution: Resolution | None = None
    created_at_ms: int
    resolved_at_ms: int | None = None
