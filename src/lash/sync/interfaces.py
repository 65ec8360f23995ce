"""Written by ``python -m tools.write_sync_stub``; change the async classes, not this file."""

from typing import Final

INTERFACES: Final = {
    "ActStore": "lash.stores.act",
    "ActivityStore": "lash.stores.activity",
    "App": "lash.runtime.app",
    "ArtifactStore": "lash.stores.artifact",
    "AttachmentStore": "lash.stores.attachment",
    "EffectStore": "lash.stores.effect",
    "EventStore": "lash.stores.process.event",
    "GrantStore": "lash.stores.process.grant",
    "HintListener": "lash.stores.hints",
    "Hints": "lash.stores.hints",
    "LeaseStore": "lash.stores.lease",
    "LimitStore": "lash.stores.limit",
    "Maintenance": "lash.stores.maintenance",
    "OccurrenceStore": "lash.stores.trigger.emit",
    "ProcessHandle": "lash.runtime.processes.handle",
    "ProcessLeaseStore": "lash.stores.process.process",
    "ProcessStore": "lash.stores.process.process",
    "ProcessWaiter": "lash.stores.waiter",
    "QueueStore": "lash.stores.queue",
    "RecordStore": "lash.stores.record",
    "ScheduleStore": "lash.stores.trigger.schedule",
    "Session": "lash.stores.session",
    "SessionHandle": "lash.runtime.turns.handle",
    "SessionStore": "lash.stores.session",
    "Starter": "lash.runtime.processes.starter",
    "Storage": "lash.stores.storage",
    "TriggerStore": "lash.stores.trigger.trigger",
    "UsageStore": "lash.stores.usage",
    "WaitStore": "lash.stores.wait",
    "WorkStore": "lash.stores.work",
    "WorkerStore": "lash.stores.worker",
}
"""What is made blocking, and where it comes from."""
