"""The nodes of lashlang's syntax tree.

Nodes are frozen and compare by content; the span of a node is not part of its identity. The linker makes `ProcessRef`,
`HostDescriptor` and `ResourceRef`; the parser makes all other nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from lash.lang.syntax.span import Span
from lash.lang.syntax.types import Type

MAX_DEPTH: Final = 100
"""How deep a syntax tree may be, so that code may recurse over it.

A chain of operators or fields nests in the tree although it has no brackets.
"""

UnaryOperator: TypeAlias = Literal["negate", "not"]
BinaryOperator: TypeAlias = Literal[
    "add",
    "subtract",
    "multiply",
    "divide",
    "modulo",
    "equal",
    "not-equal",
    "less",
    "less-equal",
    "greater",
    "greater-equal",
    "and",
    "or",
]


@dataclass(frozen=True, slots=True)
class Node:
    """The base of all expressions and statements."""

    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Label:
    """The name of a node in the graph of a program. It is part of the program's hash."""

    title: str
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Block(Node):
    """Statements in order. Its value is the value of the last one, or null if it is empty."""

    statements: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Labelled(Node):
    """A statement with a label. It has the same path as the statement."""

    label: Label
    expression: Expression


@dataclass(frozen=True, slots=True)
class Null(Node):
    pass


@dataclass(frozen=True, slots=True)
class Bool(Node):
    value: bool


@dataclass(frozen=True, slots=True)
class Number(Node):
    """A finite IEEE double that is not negative."""

    value: float


@dataclass(frozen=True, slots=True)
class String(Node):
    value: str


@dataclass(frozen=True, slots=True)
class Variable(Node):
    name: str


@dataclass(frozen=True, slots=True)
class List(Node):
    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class ForClause:
    binding: str
    iterable: Expression


@dataclass(frozen=True, slots=True)
class IfClause:
    condition: Expression


Clause: TypeAlias = ForClause | IfClause


@dataclass(frozen=True, slots=True)
class ListComp(Node):
    """A comprehension; the first clause is a ``for``."""

    element: Expression
    clauses: tuple[Clause, ...]


@dataclass(frozen=True, slots=True)
class Record(Node):
    """Keys and values in order. A key may be repeated; the last one wins."""

    entries: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class FieldStep:
    name: str


@dataclass(frozen=True, slots=True)
class IndexStep:
    index: Expression


Step: TypeAlias = FieldStep | IndexStep


@dataclass(frozen=True, slots=True)
class Assign(Node):
    """``root`` followed by ``steps`` gets the value."""

    root: str
    steps: tuple[Step, ...]
    value: Expression


@dataclass(frozen=True, slots=True)
class If(Node):
    """A conditional statement, or ``condition ? then : otherwise``. An absent ``else`` is an empty block."""

    condition: Expression
    then: Expression
    otherwise: Expression


@dataclass(frozen=True, slots=True)
class For(Node):
    binding: str
    iterable: Expression
    body: Expression


@dataclass(frozen=True, slots=True)
class While(Node):
    condition: Expression
    body: Expression


@dataclass(frozen=True, slots=True)
class Break(Node):
    pass


@dataclass(frozen=True, slots=True)
class Continue(Node):
    pass


@dataclass(frozen=True, slots=True)
class Start(Node):
    """Start a process of this module; the arguments are by name."""

    process: str
    arguments: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True, slots=True)
class ProcessRef(Node):
    """A process of this module as a value."""

    process: str


@dataclass(frozen=True, slots=True)
class HostDescriptor(Node):
    """A value constructor of the host, applied to its input."""

    type_name: str
    input: Expression


@dataclass(frozen=True, slots=True)
class ResourceRef(Node):
    """A module of the host as an authority."""

    path: tuple[str, ...]
    resource_type: str
    alias: str


@dataclass(frozen=True, slots=True)
class ReceiverCall(Node):
    """``receiver.operation(arguments)``."""

    receiver: Expression
    operation: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Await(Node):
    operand: Expression


@dataclass(frozen=True, slots=True)
class SleepFor(Node):
    operand: Expression


@dataclass(frozen=True, slots=True)
class SleepUntil(Node):
    operand: Expression


@dataclass(frozen=True, slots=True)
class WaitSignal(Node):
    name: str


@dataclass(frozen=True, slots=True)
class SignalRun(Node):
    run: Expression
    name: str
    payload: Expression


@dataclass(frozen=True, slots=True)
class Unwrap(Node):
    """``operand?``: the value of a result, or the program fails."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Cancel(Node):
    operand: Expression


@dataclass(frozen=True, slots=True)
class Print(Node):
    operand: Expression


@dataclass(frozen=True, slots=True)
class Submit(Node):
    operand: Expression | None


@dataclass(frozen=True, slots=True)
class Yield(Node):
    operand: Expression


@dataclass(frozen=True, slots=True)
class Wake(Node):
    operand: Expression


@dataclass(frozen=True, slots=True)
class Finish(Node):
    operand: Expression | None


@dataclass(frozen=True, slots=True)
class Fail(Node):
    operand: Expression


@dataclass(frozen=True, slots=True)
class BuiltinCall(Node):
    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Field(Node):
    target: Expression
    name: str


@dataclass(frozen=True, slots=True)
class Index(Node):
    target: Expression
    index: Expression


@dataclass(frozen=True, slots=True)
class Unary(Node):
    operator: UnaryOperator
    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary(Node):
    left: Expression
    operator: BinaryOperator
    right: Expression


@dataclass(frozen=True, slots=True)
class TypeLiteral(Node):
    """``Type {...}``. A name in it is a declared type, else a type of the host, else a variable with a type."""

    type: Type


Expression: TypeAlias = (
    Block
    | Labelled
    | Null
    | Bool
    | Number
    | String
    | Variable
    | List
    | ListComp
    | Record
    | Assign
    | If
    | For
    | While
    | Break
    | Continue
    | Start
    | ProcessRef
    | HostDescriptor
    | ResourceRef
    | ReceiverCall
    | Await
    | SleepFor
    | SleepUntil
    | WaitSignal
    | SignalRun
    | Unwrap
    | Cancel
    | Print
    | Submit
    | Yield
    | Wake
    | Finish
    | Fail
    | BuiltinCall
    | Field
    | Index
    | Unary
    | Binary
    | TypeLiteral
)
