from __future__ import annotations

import apsw
import pytest

from lash import errors
from lash.sqlite.engine.errors import as_lash_error, translate


@pytest.mark.parametrize(
    ("driver", "ours"),
    [
        (apsw.BusyError, errors.StoreUnavailable),
        (apsw.LockedError, errors.StoreUnavailable),
        (apsw.InterruptError, errors.StoreUnavailable),
        (apsw.ProtocolError, errors.StoreUnavailable),
        (apsw.FullError, errors.StorageFailure),
        (apsw.IOError, errors.StorageFailure),
        (apsw.ReadOnlyError, errors.StorageFailure),
        (apsw.CantOpenError, errors.StorageFailure),
        (apsw.PermissionsError, errors.StorageFailure),
        (apsw.AuthError, errors.StorageFailure),
        (apsw.NoMemError, errors.StorageFailure),
        (apsw.NotADBError, errors.ForeignDatabase),
        (apsw.CorruptError, errors.CorruptData),
        (apsw.ConstraintError, errors.CorruptData),
        (apsw.TooBigError, errors.InvalidInput),
        (apsw.SQLError, errors.SchemaMismatch),
        (apsw.SchemaChangeError, errors.SchemaMismatch),
        (apsw.ConnectionClosedError, errors.StorageClosed),
        (apsw.MisuseError, errors.StoreError),
    ],
)
def test_every_error_of_the_driver_has_a_translation(driver: type[apsw.Error], ours: type[errors.LashError]) -> None:
    """Each exception class of the driver becomes one error of lash, with the original as its cause."""
    original = driver("the reason")
    translated = as_lash_error(original, "doing something")
    assert type(translated) is ours
    assert translated.__cause__ is original


@pytest.mark.parametrize(
    ("driver", "at_commit", "unknown"),
    [(apsw.IOError, True, True), (apsw.IOError, False, False), (apsw.FullError, True, False)],
)
def test_when_the_outcome_is_unknown(driver: type[apsw.Error], at_commit: bool, unknown: bool) -> None:  # noqa: FBT001
    """Only an I/O error at the commit leaves the outcome unknown."""
    translated = translate(driver("the reason"), "doing something", at_commit=at_commit)
    assert isinstance(translated, errors.StorageFailure)
    assert translated.outcome_unknown is unknown


def test_other_errors_pass() -> None:
    """An exception that is not the driver's is returned unchanged."""
    original = ZeroDivisionError()
    assert as_lash_error(original, "doing something") is original
