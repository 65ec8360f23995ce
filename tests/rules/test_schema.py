"""Validation of payloads against JSON schemas."""

import pytest

from lash.errors import InvalidInput
from lash.model.value import JSON, JSONObject
from lash.plan.process.schema import check_payload, check_schema

LISTED: JSONObject = {"type": "object", "properties": {"a": {"type": "integer"}}}
OPEN: JSONObject = {**LISTED, "additionalProperties": True}
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        ({}, None),
        ({}, {"anything": [1]}),
        ({"type": "object"}, {"unlisted": 1}),
        (LISTED, {}),
        (LISTED, {"a": 1}),
        (OPEN, {"a": 1, "b": 2}),
        ({**LISTED, "additionalProperties": {"type": "string"}}, {"a": 1, "b": "text"}),
        ({**LISTED, "patternProperties": {"^x-": {}}}, {"a": 1, "x-b": 2}),
        ({"properties": {"properties": {"type": "object"}}}, {"properties": {"unlisted": 1}}),
        ({"const": {"properties": {}}}, {"properties": {}}),
        ({"type": ["string", "null"]}, None),
        ({"enum": ["a", 1]}, 1),
        ({"type": "integer", "minimum": 1, "maximum": 1}, 1),
        ({"minLength": 2, "maxLength": 2}, "äö"),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2}, ["a"]),
        ({"type": "array", "items": {"type": "string"}}, ("a", "b")),
        ({"anyOf": [LISTED, {"properties": {"b": {}}}]}, {"b": 1}),
        ({"oneOf": [{"type": "null"}, LISTED]}, {"a": 1}),
        ({"$ref": "#/$defs/listed", "$defs": {"listed": LISTED}}, {"a": 1}),
        ({"properties": {"next": {"$ref": "#"}}}, {"next": {"next": {}}}),
    ],
)
def test_payloads_that_fit(schema: JSONObject, payload: JSON) -> None:
    """What a schema allows is accepted, and so is everything that it does not mention."""
    check_schema("schema", schema)
    check_payload("payload", schema, payload)


@pytest.mark.parametrize(
    ("schema", "payload", "place"),
    [
        ({"type": "object"}, [], "payload"),
        (LISTED, {"a": "text"}, "payload.a"),
        ({"required": ["a"]}, {}, "payload"),
        ({"enum": ["a", 1]}, 2, "payload"),
        ({"minimum": 1}, 0, "payload"),
        ({"maximum": 1}, 2, "payload"),
        ({"minLength": 2}, "a", "payload"),
        ({"maxLength": 1}, "äö", "payload"),
        ({"minItems": 1}, [], "payload"),
        ({"maxItems": 1}, [1, 2], "payload"),
        ({"properties": {"a": {"items": {"type": "string"}}}}, {"a": ["x", 1]}, "payload.a[1]"),
        ({"not": {}}, None, "payload"),
    ],
)
def test_payloads_that_do_not_fit(schema: JSONObject, payload: JSON, place: str) -> None:
    """The message names the position in the payload."""
    check_schema("schema", schema)
    with pytest.raises(InvalidInput) as raised:
        check_payload("payload", schema, payload)
    assert str(raised.value).split(": ")[0] == place


@pytest.mark.parametrize(
    ("schema", "payload"),
    [
        (LISTED, {"b": 1}),
        ({"properties": {}}, {"b": 1}),
        ({**LISTED, "additionalProperties": False}, {"b": 1}),
        ({"properties": {"o": LISTED}}, {"o": {"b": 1}}),
        ({"patternProperties": {"^o": LISTED}}, {"o": {"b": 1}}),
        ({"additionalProperties": LISTED}, {"o": {"b": 1}}),
        ({"items": LISTED}, [{"a": 1}, {"b": 1}]),
        ({"prefixItems": [{}, LISTED]}, [1, {"b": 1}]),
        ({"$schema": DRAFT_7, "items": [LISTED]}, [{"b": 1}]),
        ({"anyOf": [LISTED, {"type": "null"}]}, {"b": 1}),
        ({"oneOf": [LISTED, {"type": "null"}]}, {"b": 1}),
        ({"$ref": "#/$defs/listed", "$defs": {"listed": LISTED}}, {"b": 1}),
        ({"$schema": DRAFT_7, "$ref": "#/definitions/listed", "definitions": {"listed": LISTED}}, {"b": 1}),
        ({"properties": {"next": {"$ref": "#"}}}, {"next": {"b": 1}}),
    ],
)
def test_unlisted_properties_are_refused_where_some_are_listed(schema: JSONObject, payload: JSON) -> None:
    """A misspelt property is an error at any depth, unless its schema allows others."""
    check_schema("schema", schema)
    with pytest.raises(InvalidInput, match="payload"):
        check_payload("payload", schema, payload)


@pytest.mark.parametrize(
    "part",
    [
        {"allOf": [{"properties": {"a": {"type": "integer"}}}, {"properties": {"b": {}}}]},
        {"anyOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"a": {"const": 2}}}]},
        {"oneOf": [{"properties": {"a": {"const": 1}}}, {"properties": {"a": {"const": 2}}}]},
        {"if": {"properties": {"a": {"const": 2}}}, "else": {"properties": {"b": {"const": "text"}}}},
        {"dependentSchemas": {"a": {"properties": {"b": {"type": "string"}}}}},
        {"not": {"properties": {"a": {"const": 2}}}},
    ],
    ids=lambda part: next(iter(part)),
)
def test_a_part_of_a_schema_speaks_only_of_what_it_names(part: JSONObject) -> None:
    """Conditions and additions see the whole object and do not refuse what another part lists."""
    check_payload("payload", {"properties": {"a": {}, "b": {}}, **part}, {"a": 1, "b": "text"})


def test_a_condition_is_met_by_an_object_with_more_properties() -> None:
    """A condition applies even if it names only one of the object's properties."""
    schema: JSONObject = {
        "properties": {"kind": {}, "url": {}, "note": {}},
        "if": {"properties": {"kind": {"const": "link"}}},
        "then": {"required": ["url"]},
    }
    check_payload("payload", schema, {"kind": "text", "note": ""})
    with pytest.raises(InvalidInput, match='"url" is a required property'):
        check_payload("payload", schema, {"kind": "link", "note": ""})


def test_a_schema_that_speaks_of_what_no_part_lists_is_left_to_it() -> None:
    """``unevaluatedProperties`` replaces the implicit ``additionalProperties``."""
    schema: JSONObject = {"allOf": [LISTED], "properties": {"b": {}}, "unevaluatedProperties": False}
    check_payload("payload", schema, {"a": 1, "b": 2})
    with pytest.raises(InvalidInput, match="'c'"):
        check_payload("payload", schema, {"c": 3})


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "wat"}, '"wat"'),
        ({"properties": 5}, "5 is not of type"),
        ({"anyOf": {}}, "is not of type"),
        ({"pattern": "("}, "regex"),
        ({"$ref": "#/$defs/missing"}, "/\\$defs/missing"),
        ({"$schema": "https://example.com/meta"}, "meta-schema"),
        ({"$ref": "https://example.com/schema"}, "a schema may not refer to https://example.com/schema"),
        ({"$ref": "file:///etc/hostname"}, "a schema may not refer to file:///etc/hostname"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "other.json"),
    ],
)
def test_unusable_schemas_are_refused(schema: JSONObject, reason: str) -> None:
    """A schema that is invalid or refers outside itself is refused at once; neither disk nor network is read."""
    with pytest.raises(InvalidInput, match=f"^type 'x': the JSON schema cannot be used: .*{reason}"):
        check_schema("type 'x'", schema)
