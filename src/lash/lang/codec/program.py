"""The stored form of programs."""

from __future__ import annotations

from lash.lang.codec.expressions import decode_expression, decode_label, encode_expression, encode_label
from lash.lang.codec.reader import fields, items, refused, tagged, text
from lash.lang.codec.types import decode_type, encode_type
from lash.lang.syntax.nodes import Block
from lash.lang.syntax.program import Declaration, Parameter, ProcessDeclaration, Program, TypeDeclaration
from lash.model.value import JSON


def encode_program(program: Program) -> JSON:
    """Return the JSON of a program, without spans."""
    declarations: list[JSON] = [_encode_declaration(each) for each in program.declarations]
    present: dict[str, JSON] = {"declarations": declarations} if declarations else {}
    return {**present, "main": encode_expression(program.main)}


def decode_program(value: JSON) -> Program:
    """Read a program, or raise CorruptData. The nodes have no spans."""
    found = fields(value, ("main",), ("declarations",))
    declarations = items(found.get("declarations", []), _decode_declaration, 0)
    return Program(declarations, _block(found["main"]))


def _block(value: JSON, depth: int = 0) -> Block:
    block = decode_expression(value, depth)
    if not isinstance(block, Block):
        raise refused("a block")
    return block


def _encode_declaration(declaration: Declaration) -> JSON:
    if isinstance(declaration, TypeDeclaration):
        return {"Type": {"name": declaration.name, "ty": encode_type(declaration.type)}}
    process: dict[str, JSON] = {"name": declaration.name, "params": _encode_parameters(declaration.parameters)}
    if declaration.signals:
        process["signals"] = _encode_parameters(declaration.signals)
    if declaration.return_type is not None:
        process["return_ty"] = encode_type(declaration.return_type)
    if declaration.label is not None:
        process["label"] = encode_label(declaration.label)
    return {"Process": {**process, "body": encode_expression(declaration.body)}}


def _decode_declaration(value: JSON, depth: int) -> Declaration:
    tag, body = tagged(value)
    if tag == "Type":
        found = fields(body, ("name", "ty"))
        return TypeDeclaration(text(found["name"]), decode_type(found["ty"], depth))
    if tag != "Process":
        raise refused("a declaration")
    found = fields(body, ("name", "params", "body"), ("signals", "return_ty", "label"))
    return ProcessDeclaration(
        text(found["name"]),
        items(found["params"], _decode_parameter, depth),
        _block(found["body"], depth),
        items(found.get("signals", []), _decode_parameter, depth),
        decode_type(found["return_ty"], depth) if "return_ty" in found else None,
        decode_label(found["label"]) if "label" in found else None,
    )


def _encode_parameters(parameters: tuple[Parameter, ...]) -> JSON:
    return [{"name": each.name, "ty": encode_type(each.type)} for each in parameters]


def _decode_parameter(value: JSON, depth: int) -> Parameter:
    found = fields(value, ("name", "ty"))
    return Parameter(text(found["name"]), decode_type(found["ty"], depth))
