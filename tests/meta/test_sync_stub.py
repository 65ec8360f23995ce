"""The types of the blocking facade are those of the async classes, as these are now."""

from lash.sync.proxy import INTERFACES
from tools.write_sync_stub import STUB, stub, table


def test_the_stub_is_up_to_date() -> None:
    """Whoever changes an async class runs ``python -m tools.write_sync_stub``."""
    assert STUB.read_text(encoding="utf-8") == stub()


def test_every_async_class_that_can_be_reached_is_made_blocking() -> None:
    """The table of `lash.sync.proxy` holds what the signatures lead to from App and Storage, and nothing else."""
    assert dict(INTERFACES) == table()
