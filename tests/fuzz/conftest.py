"""How many inputs are made up: few and always the same in ``make test``, many and new ones in ``make fuzz``."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

_EXAMPLES = int(os.environ.get("LASH_FUZZ_EXAMPLES", "0"))

settings.register_profile(
    "lash-fuzz",
    max_examples=_EXAMPLES or 40,
    derandomize=not _EXAMPLES,
    database=None,
    deadline=None,
    # What is found is shrunk only in the long form: in the short one the first find is the same each time.
    phases=[Phase.explicit, Phase.generate, Phase.target, *([Phase.shrink] if _EXAMPLES else [])],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
    print_blob=True,
)
