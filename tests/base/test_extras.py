"""What an import says if the library of an extra is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

_IMPORT = """
import sys
sys.modules[sys.argv[2]] = None
__import__(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [
        ("lash.agents.openai", "openai", "openai"),
        ("lash.agents.anthropic", "anthropic", "anthropic"),
        ("lash.adapters.langgraph", "langgraph", "langgraph"),
        ("lash.adapters.openai_agents", "agents", "openai-agents"),
        ("lash.adapters.adk", "google.adk", "adk"),
    ],
)
def test_an_import_names_the_extra_to_install(module: str, library: str, extra: str) -> None:
    """The error is a ConfigError with the command that installs what is missing."""
    done = subprocess.run([sys.executable, "-c", _IMPORT, module, library], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("lash.errors.ConfigError: ")
    assert last.endswith(f"pip install 'lash-runtime[{extra}]'")
