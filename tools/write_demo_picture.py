"""Runs the demo and writes its output as ``docs/assets/demo.svg``, which the README shows.

The lines are those of a real run, and appear at the times at which the demo printed them. An image viewer without CSS
animations shows all of them at once.
"""

from __future__ import annotations

import re
import subprocess
import sys
from html import escape
from pathlib import Path
from typing import Final

_TARGET: Final = Path(__file__).resolve().parents[1] / "docs" / "assets" / "demo.svg"
_COMMAND: Final = "python -m lash.demo"
_LINE, _BLANK = 18, 9
"""Heights of a line and of an empty line, in pixels."""
_LEFT, _TOP, _WIDTH = 22, 34, 700
_TIMED: Final = re.compile(r" +(?P<time>\d+\.\d) s  (?P<text>.*)")
_STYLE: Final = """\
text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d6dbe4;
  white-space: pre; }
.title { fill: #ffffff; font-weight: bold; }
.dim { fill: #7d8799; }
.kill { fill: #ff6b6b; font-weight: bold; }
.ok { fill: #4cd38a; font-weight: bold; }
.said { fill: #8ab4ff; }
@keyframes appear { from { opacity: 0; } to { opacity: 1; } }
@media (prefers-reduced-motion: no-preference) { g { animation: appear 0.15s both; } }"""


def main() -> None:
    """Run the demo and write the picture."""
    shown = subprocess.run([sys.executable, "-m", "lash.demo"], capture_output=True, text=True, check=True).stdout
    _TARGET.write_text(picture(shown), encoding="utf-8")


def picture(output: str) -> str:
    """Return the output of the demo as an SVG of a terminal."""
    seconds, height = 0.0, _TOP
    rows: list[str] = []
    for line in [f"$ {_COMMAND}", *output.rstrip("\n").splitlines()]:
        match = _TIMED.fullmatch(line)
        # A line without a time appears shortly after the one above it.
        seconds = max(seconds + 0.05, float(match["time"])) if match else seconds + 0.05
        height += _LINE if line else _BLANK
        rows.append(
            f'<g style="animation-delay: {seconds:.2f}s">'
            f'<text x="{_LEFT}" y="{height}" xml:space="preserve">{_spans(line)}</text></g>'
        )
    size = f'viewBox="0 0 {_WIDTH} {height + _LINE}" width="{_WIDTH}" height="{height + _LINE}"'
    buttons = [
        f'<circle cx="{_LEFT + 18 * number}" cy="22" r="6" fill="{colour}"/>'
        for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="Output of {_COMMAND}">',
            f"<style>{_STYLE}</style>",
            '<rect width="100%" height="100%" rx="9" fill="#171b24"/>',
            *buttons,
            *rows,
            "</svg>\n",
        ]
    )


def _spans(line: str) -> str:
    match = _TIMED.fullmatch(line)
    if match is not None:
        kind = next((kind for start, kind in _KINDS.items() if match["text"].startswith(start)), "")
        return _span("dim", line[: match.start("text")]) + _span(kind, match["text"])
    if line.startswith("  "):
        return _span("ok" if line.startswith("  ok") else "kill", line[:8]) + _span("", line[8:])
    return _span("title", line)


_KINDS: Final = {"kill -9": "kill", "you ": "said", "agent ": "said"}
"""Styles of timed lines by their first word."""


def _span(kind: str, text: str) -> str:
    shown = escape(text, quote=False)
    return f'<tspan class="{kind}">{shown}</tspan>' if kind else shown


if __name__ == "__main__":
    main()
