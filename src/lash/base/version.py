"""The version of lash, for layers that must not import the package with all its names."""

from __future__ import annotations

import sys
from typing import Final

VERSION: Final[str] = sys.modules[__name__.partition(".")[0]].__version__
