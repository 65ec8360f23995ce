"""Written by ``python -m tools.write_sync_stub``; change the async classes, not this file."""

from typing import Final

INTERFACES: Final = {
    "ActivityStore": "lash.stores.activity",
    "App": "lash.runtime.app",
    "ArtifactStore": "lash.stores.artifact",
    "AttachmentStore": "lash.stores.attachment",
    "ChangeSignals": "lash.stores.notify",
    "EffectStore": "lash.stores.effect",
    "EventStore": "lash.stores.event",
    "GrantStore": "lash.stores.grant",
    "LeaseStore": "lash.stores.lease",
    "Listener": "lash.stores.notify",
    "Maintenance": "lash.stores.maintenance",
    "OccurrenceStore": "lash.stores.trigger",
    "ProcessHandle": "lash.runtime.handle",
    "ProcessLeaseStore": "lash.stores.process",
    "ProcessStore": "lash.stores.process",
    "ProcessWaiter": "lash.waiting",
    "QueueStore": "lash.stores.queue",
    "ScheduleStore": "lash.stores.schedule",
    "Session": "lash.stores.session",
    "SessionHandle": "lash.runtime.session",
    "SessionStore": "lash.stores.session",
    "Starter": "lash.runtime.starter",
    "Storage": "lash.stores.storage",
    "TriggerStore": "lash.stores.trigger",
    "WaitStore": "lash.stores.wait",
    "WorkStore": "lash.stores.work",
}
"""What is made blocking, and where it comes from."""
