"""Cells: pieces of a program that a model writes in a turn, one after the other."""

from __future__ import annotations

from typing import Literal

from lash.model.value import JSON, Value


class CellResult(Value, frozen=True, kw_only=True):
    """How a cell ended.

    After ``submitted`` the program wants to end the turn with ``value``; the agent decides. After ``continued`` and
    ``failed`` the model is called again, with ``text``. Variables keep their values in all three cases.
    """

    outcome: Literal["continued", "submitted", "failed"]
    value: JSON = None
    printed: tuple[str, ...] = ()
    error: str | None = None

    @property
    def text(self) -> str:
        """What the model should see: everything that was printed, then the error."""
        lines = list(self.printed)
        if self.error is not None:
            lines.append(f"error: {self.error}")
        elif self.outcome == "continued" and not lines:
            lines.append("(nothing was printed)")
        return "\n".join(lines)
