"""Moving sessions and whole storages: to a file and back, and from one backend to another."""

from lash.transfer.copy import CopyReport, NotCopied, copy_storage
from lash.transfer.export import Exported, export_session
from lash.transfer.load import Imported, import_session
from lash.transfer.move import MoveReport, move_storage
from lash.transfer.progress import OnProgress, Progress

__all__ = [
    "CopyReport",
    "Exported",
    "Imported",
    "MoveReport",
    "NotCopied",
    "OnProgress",
    "Progress",
    "copy_storage",
    "export_session",
    "import_session",
    "move_storage",
]
