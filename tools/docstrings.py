"""Docstrings as the site shows them; named in ``mkdocs.yml`` as an extension of Griffe."""

from __future__ import annotations

import re

import griffe

_BEFORE_CODE = re.compile(r"(?m)^(?P<text>.*?)::[ ]*$")


class PlainCodeBlocks(griffe.Extension):
    """Takes the second colon from before an indented block: in Markdown the indentation alone makes it code."""

    def on_instance(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _BEFORE_CODE.sub(_one_colon, obj.docstring.value)


def _one_colon(match: re.Match[str]) -> str:
    return f"{match['text']}:" if match["text"] else ""
