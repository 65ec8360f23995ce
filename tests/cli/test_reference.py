"""The reference page matches the commands."""

from __future__ import annotations

from lash.cli.exits import MEANINGS
from tests.cli.test_examples import LEAVES
from tools.write_command_page import PAGE, page


def test_the_page_is_up_to_date() -> None:
    """The generated part is current; `python -m tools.write_command_page` writes it."""
    present = PAGE.read_text(encoding="utf-8")
    assert page(present) == present


def test_the_page_names_every_command_example_and_code() -> None:
    """Every command, example and exit code is on the page."""
    text = PAGE.read_text(encoding="utf-8")
    for name, leaf in LEAVES.items():
        assert f" lash {name}\n" in text
        assert all(f"\n{example}\n" in text for example in leaf.examples)
    assert all(f"| {code} |" in text for code in MEANINGS)
