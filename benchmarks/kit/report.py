"""What a scenario found: the headline, every figure behind it, and the versions of all who took part."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

from benchmarks.kit.measure import Samples

JSONValue: TypeAlias = "None | bool | int | float | str | list[JSONValue] | dict[str, JSONValue]"


_BEYOND = 1e9


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One figure of one contender; ``case`` says under which circumstances."""

    contender: str
    case: str
    unit: str
    samples: Samples
    at: int | None = None
    """The number of workers, if the figure is a point of a curve over them."""

    def as_json(self) -> dict[str, JSONValue]:
        about: dict[str, JSONValue] = {
            "contender": self.contender,
            "case": self.case,
            "unit": self.unit,
            "median": rounded(self.samples.median),
            "spread": rounded(self.samples.spread),
            "values": [rounded(value) for value in self.samples.values],
        }
        return about if self.at is None else about | {"at": self.at}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """One figure over another, measured in the same rounds."""

    case: str
    ours: Samples
    other: Samples
    unit: str

    @property
    def value(self) -> float:
        if self.other.median == 0:
            # Nothing over nothing is even; anything over nothing is beyond any bound.
            return 1.0 if self.ours.median == 0 else _BEYOND
        return self.ours.median / self.other.median

    @classmethod
    def of(cls, ours: Row, other: Row) -> Ratio:
        return cls(
            case=f"{ours.contender} ({ours.case}) / {other.contender} ({other.case})",
            ours=ours.samples,
            other=other.samples,
            unit=ours.unit,
        )

    def as_json(self) -> dict[str, JSONValue]:
        return {"case": self.case, "ratio": rounded(self.value)}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What one run of a scenario found. The first ratio is the headline."""

    ratios: tuple[Ratio, ...]
    rows: tuple[Row, ...]
    versions: dict[str, str]
    notes: tuple[str, ...] = ()

    def headline(self, scenario: str) -> dict[str, JSONValue]:
        """Return the one object that is printed last."""
        first = self.ratios[0]
        return {
            "scenario": scenario,
            "ours": rounded(first.ours.median),
            "other": rounded(first.other.median),
            "ratio": rounded(first.value),
            "unit": first.unit,
            "versions": dict(sorted(self.versions.items())),
        }

    def as_json(self, scenario: str) -> dict[str, JSONValue]:
        """Return everything, for the file of results."""
        return {
            **self.headline(scenario),
            "compared": self.ratios[0].case,
            "ratios": [each.as_json() for each in self.ratios],
            "rows": [each.as_json() for each in self.rows],
            "notes": list(self.notes),
        }


def rounded(value: float) -> float:
    """Return the number with four significant digits: more would pretend."""
    return float(f"{value:.4g}")
