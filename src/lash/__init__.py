"""Durable state and execution for AI agents: one SQLite file, or PostgreSQL.

Here are the names that most programs need. Every value is in ``lash.model``, every store in ``lash.stores``, and every
error in ``lash.errors``; blocking use is ``lash.sync``.
"""

from typing import TYPE_CHECKING

__version__ = "0.1.0.dev0"

if TYPE_CHECKING:
    # For type checkers and editors; a test compares it with the table below.
    from lash import errors as errors
    from lash import model as model
    from lash import stores as stores
    from lash import sync as sync
    from lash import telemetry as telemetry
    from lash.backend.liveness import current_owner as current_owner
    from lash.base.compression import Compression as Compression
    from lash.base.seal import Sealer as Sealer
    from lash.bytestore.file import FileBytes as FileBytes
    from lash.bytestore.s3 import S3Bytes as S3Bytes
    from lash.connect.open import open_storage
    from lash.connect.shared import shared as shared
    from lash.errors import Advice as Advice
    from lash.errors import AttachmentNotFound as AttachmentNotFound
    from lash.errors import CannotUnseal as CannotUnseal
    from lash.errors import CommitTooLarge as CommitTooLarge
    from lash.errors import ConfigError as ConfigError
    from lash.errors import Conflict as Conflict
    from lash.errors import CorruptData as CorruptData
    from lash.errors import ExecutionError as ExecutionError
    from lash.errors import ForeignDatabase as ForeignDatabase
    from lash.errors import InvalidInput as InvalidInput
    from lash.errors import LashError as LashError
    from lash.errors import LeaseLost as LeaseLost
    from lash.errors import NewerSchema as NewerSchema
    from lash.errors import NotFound as NotFound
    from lash.errors import OutcomeUnknown as OutcomeUnknown
    from lash.errors import PendingMigrations as PendingMigrations
    from lash.errors import ProcessFailed as ProcessFailed
    from lash.errors import ProcessNotFound as ProcessNotFound
    from lash.errors import ProcessTerminal as ProcessTerminal
    from lash.errors import RevisionConflict as RevisionConflict
    from lash.errors import SchemaMismatch as SchemaMismatch
    from lash.errors import SessionDeleted as SessionDeleted
    from lash.errors import SessionExists as SessionExists
    from lash.errors import SessionNotFound as SessionNotFound
    from lash.errors import StepFailed as StepFailed
    from lash.errors import StorageClosed as StorageClosed
    from lash.errors import StorageFailure as StorageFailure
    from lash.errors import StoreError as StoreError
    from lash.errors import StoreUnavailable as StoreUnavailable
    from lash.errors import TurnFailed as TurnFailed
    from lash.errors import UnknownDefinition as UnknownDefinition
    from lash.errors import WaitRejected as WaitRejected
    from lash.errors import WaitTimedOut as WaitTimedOut
    from lash.errors import WaitUnknown as WaitUnknown
    from lash.model.activity import Committed as Committed
    from lash.model.activity import Gap as Gap
    from lash.model.activity import Observed as Observed
    from lash.model.activity import ProcessChanged as ProcessChanged
    from lash.model.activity import QueueChanged as QueueChanged
    from lash.model.activity import TurnActivity as TurnActivity
    from lash.model.effect import EffectError as EffectError
    from lash.model.effect import EffectRecord as EffectRecord
    from lash.model.gap import GapReason as GapReason
    from lash.model.process.event import EventType as EventType
    from lash.model.process.event import ProcessEvent as ProcessEvent
    from lash.model.process.process import Cancellation as Cancellation
    from lash.model.process.process import Failure as Failure
    from lash.model.process.process import ProcessFilter as ProcessFilter
    from lash.model.process.process import ProcessRecord as ProcessRecord
    from lash.model.process.process import ProcessStatus as ProcessStatus
    from lash.model.process.process import Success as Success
    from lash.model.queue import AttachmentItem as AttachmentItem
    from lash.model.queue import Batch as Batch
    from lash.model.queue import DeadLetter as DeadLetter
    from lash.model.queue import Enqueued as Enqueued
    from lash.model.queue import ProcessWake as ProcessWake
    from lash.model.queue import TextItem as TextItem
    from lash.model.session.commit import CommitBudget as CommitBudget
    from lash.model.session.message import AttachmentRef as AttachmentRef
    from lash.model.session.message import Message as Message
    from lash.model.session.message import Part as Part
    from lash.model.session.message import PartKind as PartKind
    from lash.model.session.message import Role as Role
    from lash.model.session.session import Durability as Durability
    from lash.model.session.session import Retention as Retention
    from lash.model.session.usage import TokenUsage as TokenUsage
    from lash.model.session.usage import UsageEntry as UsageEntry
    from lash.model.trigger.schedule import CatchUp as CatchUp
    from lash.model.trigger.trigger import EmitReport as EmitReport
    from lash.runtime.app import App as App
    from lash.runtime.current import current as current
    from lash.runtime.declarations import Router as Router
    from lash.runtime.definition import AgentDefinition as AgentDefinition
    from lash.runtime.definition import ProcessDefinition as ProcessDefinition
    from lash.runtime.errors import Permanent as Permanent
    from lash.runtime.hooks import Hook as Hook
    from lash.runtime.hooks import LoggingHook as LoggingHook
    from lash.runtime.policy import Retry as Retry
    from lash.runtime.policy import WorkerOptions as WorkerOptions
    from lash.runtime.processes.context import ChildHandle as ChildHandle
    from lash.runtime.processes.context import Context as Context
    from lash.runtime.processes.handle import ProcessHandle as ProcessHandle
    from lash.runtime.processes.starter import Starter as Starter
    from lash.runtime.trigger import EVENT as EVENT
    from lash.runtime.trigger import pointer as pointer
    from lash.runtime.turns.handle import SessionHandle as SessionHandle
    from lash.runtime.turns.messages import text_of as text_of
    from lash.runtime.turns.turn import Turn as Turn
    from lash.sealing.aes_gcm import AesGcm as AesGcm
    from lash.stores.attachment import ByteStore as ByteStore
    from lash.stores.session import Session as Session
    from lash.stores.storage import Storage as Storage

    open = open_storage
else:
    _MODULES = {
        "lash.backend.liveness": "current_owner",
        "lash.base.compression": "Compression",
        "lash.base.seal": "Sealer",
        "lash.bytestore.file": "FileBytes",
        "lash.bytestore.s3": "S3Bytes",
        "lash.connect.open": "open",
        "lash.connect.shared": "shared",
        "lash.errors": (
            "Advice AttachmentNotFound CannotUnseal CommitTooLarge ConfigError Conflict CorruptData ExecutionError "
            "ForeignDatabase InvalidInput LashError LeaseLost NewerSchema NotFound OutcomeUnknown "
            "PendingMigrations ProcessFailed ProcessNotFound ProcessTerminal RevisionConflict SchemaMismatch "
            "SessionDeleted SessionExists SessionNotFound StepFailed StorageClosed StorageFailure StoreError "
            "StoreUnavailable TurnFailed UnknownDefinition WaitRejected WaitTimedOut WaitUnknown"
        ),
        "lash.model.activity": "Committed Gap Observed ProcessChanged QueueChanged TurnActivity",
        "lash.model.effect": "EffectError EffectRecord",
        "lash.model.gap": "GapReason",
        "lash.model.process.event": "EventType ProcessEvent",
        "lash.model.process.process": "Cancellation Failure ProcessFilter ProcessRecord ProcessStatus Success",
        "lash.model.queue": "AttachmentItem Batch DeadLetter Enqueued ProcessWake TextItem",
        "lash.model.session.commit": "CommitBudget",
        "lash.model.session.message": "AttachmentRef Message Part PartKind Role",
        "lash.model.session.session": "Durability Retention",
        "lash.model.session.usage": "TokenUsage UsageEntry",
        "lash.model.trigger.schedule": "CatchUp",
        "lash.model.trigger.trigger": "EmitReport",
        "lash.runtime.app": "App",
        "lash.runtime.current": "current",
        "lash.runtime.declarations": "Router",
        "lash.runtime.definition": "AgentDefinition ProcessDefinition",
        "lash.runtime.errors": "Permanent",
        "lash.runtime.hooks": "Hook LoggingHook",
        "lash.runtime.policy": "Retry WorkerOptions",
        "lash.runtime.processes.context": "ChildHandle Context",
        "lash.runtime.processes.handle": "ProcessHandle",
        "lash.runtime.processes.starter": "Starter",
        "lash.runtime.trigger": "EVENT pointer",
        "lash.runtime.turns.handle": "SessionHandle",
        "lash.runtime.turns.messages": "text_of",
        "lash.runtime.turns.turn": "Turn",
        "lash.sealing.aes_gcm": "AesGcm",
        "lash.stores.attachment": "ByteStore",
        "lash.stores.session": "Session",
        "lash.stores.storage": "Storage",
    }
    """Where each name comes from. It is imported when it is first used, because opening a storage needs few of them."""
    _RENAMED = {"open": "open_storage"}
    """Names that differ in their modules."""
    _SUBMODULES = ("errors", "model", "stores", "sync", "telemetry")
    """Modules that are found as ``lash.sync`` without an import of their own."""
    _HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}
    __all__ = [*sorted(_HOMES), *_SUBMODULES, "__version__"]  # noqa: PLE0604 (all of them are text)

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _SUBMODULES:
            return import_module(f"lash.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'lash' has no attribute {name!r}")
        value: object = getattr(import_module(_HOMES[name]), _RENAMED.get(name, name))
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted(__all__)
