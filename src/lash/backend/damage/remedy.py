"""What to do about damage: the advice that several findings share."""

from __future__ import annotations

from typing import Final

SESSION: Final = "restore the session from a backup; without one, lash sessions rm removes it"
QUEUE: Final = "restore a backup; without one, send the message again under a new key"
PROCESS: Final = "restore a backup; without one, let the process end and prune it"
FEED: Final = "let readers of the feed start again without a cursor; the log of the process is whole"
EFFECTS: Final = "retire the scope with storage.effects.retire: its steps run again"
SIGNING_KEYS: Final = "restore lash_secrets from a backup; without one, hand out new keys"
OCCURRENCE: Final = "restore a backup; without one, emit the occurrence again under a new key"
RECORD: Final = "put the record again, or restore a backup"
TRIGGER: Final = "register it again, or delete it"
SEALED: Final = "open the storage with the key that sealed it; an altered row is restored from a backup"
WAIT: Final = "restore a backup; without one, revoke the keys of the session and hand out new ones"
