"""The name and the identity of an effect, and whether it can be stored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from lash.base.codec import canonical, content_hash, decode, encode
from lash.base.limits import check_identifier
from lash.errors import CorruptData, EffectMismatch, InvalidInput
from lash.model.effect import (
    AwaitEvent,
    Command,
    EffectError,
    EffectStatus,
    Envelope,
    ExecCode,
    PreparedCall,
    ProcessCommand,
    Sleep,
    Step,
    ToolAttempt,
    ToolBatch,
)
from lash.model.scope import scope_id
from lash.model.value import JSON, Value

MAX_ENVELOPE_LENGTH: Final = 4_194_304
"""The longest envelope, in bytes: a request to a model carries its conversation."""
MAX_OUTCOME_LENGTH: Final = 1_048_576
"""The longest outcome or error, in characters; a retry reads those of all earlier steps."""
MAX_KEY_BYTES: Final = 2_400
"""The most bytes of a scope and a replay key together, so that every database can index them."""

_DOMAIN: Final = b"lash.effect.v1\0"
_OPERATIONS: Final = frozenset({"start", "list", "transfer", "delete_session", "await", "cancel", "signal"})


class EncodedEffect(msgspec.Struct, frozen=True, kw_only=True):
    """An envelope that was checked, and its stored form."""

    envelope: Envelope
    scope_id: str
    text: str
    hash: str

    @property
    def replay_key(self) -> str:
        return self.envelope.replay_key

    @property
    def group_key(self) -> str | None:
        return self.envelope.group_key

    @property
    def duration_ms(self) -> int | None:
        """How long it sleeps from its start; None if it is not a sleep of a duration."""
        command = self.envelope.command
        return command.duration_ms if isinstance(command, Sleep) else None

    @property
    def until_ms(self) -> int | None:
        """Until when it sleeps; None if it is not a sleep until a moment."""
        command = self.envelope.command
        return command.until_ms if isinstance(command, Sleep) else None


class StoredOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome or the error of an effect, as stored."""

    status: EffectStatus
    outcome: str | None = None
    error: str | None = None


class _OutcomeDocument(Value, frozen=True, kw_only=True):
    outcome: JSON


def encode_envelope(envelope: object) -> EncodedEffect:
    """Return the stored form and the identity of an envelope; raise InvalidInput if it is not valid."""
    if not isinstance(envelope, Envelope):
        raise InvalidInput(f"expected an Envelope, got {type(envelope).__name__}")
    name = scope_id(envelope.scope)
    check_identifier("replay_key", envelope.replay_key)
    _check_indexable(name, envelope.replay_key)
    if envelope.group_key is not None:
        check_identifier("group_key", envelope.group_key)
        _check_indexable(name, envelope.group_key)
    what = f"effect {envelope.replay_key!r} of {name}"
    encode(envelope, Envelope, what)
    _check_command(what, envelope.command)
    # Plain values have sorted keys, so the order of the declarations is not part of the identity.
    text = canonical(msgspec.to_builtins(envelope))
    if len(text) > MAX_ENVELOPE_LENGTH:
        raise InvalidInput(
            f"the envelope of {what} has {len(text):,} bytes; at most {MAX_ENVELOPE_LENGTH:,} are allowed; "
            "refer to large values instead of including them"
        )
    return EncodedEffect(envelope=envelope, scope_id=name, text=text.decode(), hash=content_hash(_DOMAIN + text))


def check_key(scope: object, key: object, what: str = "replay_key") -> str:
    """Return the id of the scope; raise InvalidInput if it and the key cannot name an effect or a group."""
    name = scope_id(scope)
    _check_indexable(name, check_identifier(what, key))
    return name


def encode_outcome(what: str, outcome: JSON | EffectError) -> StoredOutcome:
    """Return the stored form of an outcome or a failure."""
    if isinstance(outcome, EffectError):
        return encode_error(what, outcome)
    text = encode(_OutcomeDocument(outcome=outcome), _OutcomeDocument, "outcome")
    _check_length(f"the outcome of {what}", text)
    return StoredOutcome(status=EffectStatus.COMPLETED, outcome=text)


def encode_error(what: str, error: object) -> StoredOutcome:
    """Return the stored form of a failure."""
    if not isinstance(error, EffectError):
        raise InvalidInput(f"expected an EffectError, got {type(error).__name__}")
    check_identifier("error.code", error.code)
    text = encode(error, EffectError, "error")
    _check_length(f"the error of {what}", text)
    return StoredOutcome(status=EffectStatus.FAILED, error=text)


def decode_outcome(text: str, what: str) -> JSON:
    """Return a stored outcome."""
    return decode(text, _OutcomeDocument, f"the outcome of {what}").outcome


def mismatch(encoded: EncodedEffect, recorded: str) -> EffectMismatch:
    """Return the error for an envelope that differs from the recorded one: the first differing path and both values."""
    what = f"effect {encoded.replay_key!r} of {encoded.scope_id}"
    stored = decode(recorded, Envelope, f"the envelope of {what}")
    difference = first_difference(msgspec.to_builtins(stored), msgspec.to_builtins(encoded.envelope))
    if difference is None:
        raise CorruptData(f"the envelope of {what} does not have the hash under which it was recorded")
    path, before, now = difference
    return EffectMismatch(encoded.scope_id, encoded.replay_key, path=path, recorded=before, given=now)


def first_difference(recorded: object, given: object, path: str = "") -> tuple[str, object, object] | None:
    """Return the first path where two plain values differ as JSON, and both values; UNSET means absent."""
    match recorded, given:
        case dict(), dict():
            parts: Iterable[tuple[str, object, object]] = (
                (f"{path}.{key}" if path else key, recorded.get(key, msgspec.UNSET), given.get(key, msgspec.UNSET))
                for key in sorted(recorded.keys() | given.keys())
            )
        case ((list() | tuple()), (list() | tuple())):
            parts = (
                (f"{path}[{index}]", _item(recorded, index), _item(given, index))
                for index in range(max(len(recorded), len(given)))
            )
        case _ if _as_json(recorded) == _as_json(given):
            return None
        case _:
            return path, recorded, given
    return next((found for where, one, other in parts if (found := first_difference(one, other, where))), None)


def _item(items: list[object] | tuple[object, ...], index: int) -> object:
    return items[index] if index < len(items) else msgspec.UNSET


def _as_json(value: object) -> bytes | None:
    return None if value is msgspec.UNSET else canonical(value)


def _check_indexable(scope: str, key: str) -> None:
    size = len(scope.encode()) + len(key.encode())
    if size > MAX_KEY_BYTES:
        raise InvalidInput(f"{scope} and key {key!r} have {size:,} bytes together; at most {MAX_KEY_BYTES:,} fit")


def _check_length(what: str, text: str) -> None:
    if len(text) > MAX_OUTCOME_LENGTH:
        raise InvalidInput(
            f"{what} has {len(text):,} characters; at most {MAX_OUTCOME_LENGTH:,} are allowed; store large values "
            "as artifacts or attachments"
        )


def _check_command(what: str, command: Command) -> None:
    """Raise InvalidInput for a command of the right shape that cannot be run or named."""
    match command:
        case Step():
            check_identifier(f"{what}: name", command.name)
        case ToolAttempt():
            _check_attempt(what, command)
        case ToolBatch():
            _check_batch(what, command)
        case ProcessCommand():
            if command.op not in _OPERATIONS:
                raise InvalidInput(f"{what}: op must be one of {', '.join(sorted(_OPERATIONS))}, not {command.op!r}")
        case ExecCode():
            check_identifier(f"{what}: language", command.language)
        case Sleep():
            if (command.duration_ms is None) == (command.until_ms is None):
                raise InvalidInput(f"{what}: a sleep needs exactly one of duration_ms and until_ms")
        case AwaitEvent():
            check_identifier(f"{what}: key_id", command.key_id)


def _check_attempt(what: str, command: ToolAttempt) -> None:
    _check_call(what, command.call)
    if command.attempt > command.max_attempts:
        raise InvalidInput(f"{what}: attempt {command.attempt} is beyond max_attempts {command.max_attempts}")


def _check_batch(what: str, command: ToolBatch) -> None:
    check_identifier(f"{what}: batch_id", command.batch_id)
    if not command.calls:
        raise InvalidInput(f"{what}: the batch has no calls")
    for each in command.calls:
        _check_call(what, each.call)
        check_identifier(f"{what}: replay_suffix", each.replay_suffix)
    if len({each.replay_suffix for each in command.calls}) < len(command.calls):
        raise InvalidInput(f"{what}: two calls of the batch have the same replay_suffix")


def _check_call(what: str, call: PreparedCall) -> None:
    for name in ("call_id", "tool_id", "tool_name"):
        check_identifier(f"{what}: call.{name}", getattr(call, name))
