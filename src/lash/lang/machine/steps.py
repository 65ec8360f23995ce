"""The step of each kind of node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lash.lang.machine.comprehension import comprehend
from lash.lang.machine.inner import INNER_STEPS, Step
from lash.lang.machine.outer import OUTER_STEPS
from lash.lang.syntax import nodes

STEPS: Final[Mapping[type[nodes.Node], Step]] = {**INNER_STEPS, **OUTER_STEPS, nodes.ListComp: comprehend}
"""What a machine does with each kind of node; labelled nodes are prepared as the node inside."""
