"""Modules and their declarations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from lash.lang.syntax.nodes import Block, Label
from lash.lang.syntax.span import Span
from lash.lang.syntax.types import Type


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter, or a signal with the type of its payload."""

    name: str
    type: Type
    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class TypeDeclaration:
    name: str
    type: Type
    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class ProcessDeclaration:
    name: str
    parameters: tuple[Parameter, ...]
    body: Block
    signals: tuple[Parameter, ...] = ()
    return_type: Type | None = None
    label: Label | None = None
    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


Declaration: TypeAlias = TypeDeclaration | ProcessDeclaration


@dataclass(frozen=True, slots=True)
class Program:
    """A module: its declarations in source order, and its main block."""

    declarations: tuple[Declaration, ...] = ()
    main: Block = field(default_factory=Block)

    @property
    def types(self) -> tuple[TypeDeclaration, ...]:
        return tuple(found for found in self.declarations if isinstance(found, TypeDeclaration))

    @property
    def processes(self) -> tuple[ProcessDeclaration, ...]:
        """The processes in source order; the position of a process counts in this tuple."""
        return tuple(found for found in self.declarations if isinstance(found, ProcessDeclaration))
