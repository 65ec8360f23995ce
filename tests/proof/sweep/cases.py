"""Every case of the sweep, by name."""

from __future__ import annotations

from tests.proof.sweep import (
    cases_act,
    cases_effect,
    cases_limit,
    cases_other,
    cases_process,
    cases_queue,
    cases_record,
    cases_session,
    cases_trigger,
    cases_worker,
)
from tests.proof.sweep.case import AnyCase

CASES: dict[str, AnyCase] = {
    case.name: case
    for module in (
        cases_session,
        cases_queue,
        cases_process,
        cases_effect,
        cases_trigger,
        cases_limit,
        cases_act,
        cases_record,
        cases_worker,
        cases_other,
    )
    for case in module.CASES
}
