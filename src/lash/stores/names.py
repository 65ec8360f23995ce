"""The public Protocols: what ``lash.stores`` exports. They are loaded together when the first one is used."""

from lash.stores.act import ActStore as ActStore
from lash.stores.activity import ActivityStore as ActivityStore
from lash.stores.artifact import ArtifactStore as ArtifactStore
from lash.stores.attachment import AttachmentStore as AttachmentStore
from lash.stores.attachment import ByteStore as ByteStore
from lash.stores.effect import EffectStore as EffectStore
from lash.stores.hints import Hints as Hints
from lash.stores.lease import LeaseStore as LeaseStore
from lash.stores.limit import LimitStore as LimitStore
from lash.stores.maintenance import Maintenance as Maintenance
from lash.stores.process.event import EventStore as EventStore
from lash.stores.process.grant import GrantStore as GrantStore
from lash.stores.process.process import ProcessLeaseStore as ProcessLeaseStore
from lash.stores.process.process import ProcessStore as ProcessStore
from lash.stores.queue import QueueStore as QueueStore
from lash.stores.record import RecordStore as RecordStore
from lash.stores.session import Session as Session
from lash.stores.session import SessionStore as SessionStore
from lash.stores.storage import Storage as Storage
from lash.stores.trigger.emit import OccurrenceStore as OccurrenceStore
from lash.stores.trigger.schedule import ScheduleStore as ScheduleStore
from lash.stores.trigger.trigger import TriggerStore as TriggerStore
from lash.stores.usage import UsageStore as UsageStore
from lash.stores.wait import WaitStore as WaitStore
from lash.stores.work import WorkStore as WorkStore
from lash.stores.worker import WorkerStore as WorkerStore
