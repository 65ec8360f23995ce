"""Random programs: the machine never fails in another way than programs may, and its state is all there is."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lash.lang.diagnostic import ProgramError
from lash.lang.machine.effects import Broken
from lash.lang.machine.limits import Limits
from tests.lang.machine_kit import Run
from tests.lang.program_strategies import PROGRAMS

_LIMITS = Limits(steps=20_000, memory_bytes=1_000_000, effects=200)


def _run(source: str, **options: bool | int) -> Run | None:
    try:
        return Run(source, limits=_LIMITS, **options)  # type: ignore[arg-type]
    except ProgramError:
        # The linker knows more than the strategy: such a program does not run.
        return None


@given(source=PROGRAMS, steps=st.integers(1, 40))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_random_program_runs_the_same_with_and_without_restores(source: str, steps: int) -> None:
    """It ends with a value or an error of the language, after the same effects, wherever it was stored and read."""
    whole = _run(source)
    if whole is None:
        return
    stored = _run(source, restores=True, slice_steps=steps)
    assert stored is not None
    assert stored.asked == whole.asked
    assert stored.sites == whole.sites
    assert stored.variables == whole.variables
    if isinstance(whole.end, Broken):
        assert stored.error == whole.error
    else:
        assert stored.value == whole.value
