"""ChatKit warns about its own widgets when it is imported; a warning fails a test here."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import chatkit.types  # noqa: F401 (imported for its warnings)
