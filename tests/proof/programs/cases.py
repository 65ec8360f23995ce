"""The programs of all engines that are crashed at every effect."""

from __future__ import annotations

from typing import Final

from tests.proof.programs.case import Case
from tests.proof.programs.code_cases import CODE_CASES
from tests.proof.programs.lang_cases import LANG_CASES

CASES: Final[tuple[Case, ...]] = (*CODE_CASES, *LANG_CASES)
