"""OpenAPI documents every field, although the endpoints read raw bytes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.app import create_app
from hps import api_keys, contract
from hps import settings as hps_settings


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_app(hps_settings.load({})).openapi()


def references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def fields(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], bool]]:
    for name, schema in document["components"]["schemas"].items():
        for field, described in schema["properties"].items():
            yield f"{name}.{field}", described, field in schema.get("required", [])


def test_identity_and_operations(document: dict[str, Any]) -> None:
    assert (document["info"]["title"], document["info"]["version"]) == ("PaddleOCR-VL HPS Gateway", "1.0.0")
    assert document["openapi"].startswith("3.1")
    operations = {
        (path, method): operation["operationId"]
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert operations == {
        ("/layout-parsing", "post"): "infer",
        ("/restructure-pages", "post"): "restructurePages",
        ("/health", "get"): "checkHealth",
        ("/health/ready", "get"): "checkReady",
    }


def test_every_reference_leads_to_a_component_and_every_component_is_used(document: dict[str, Any]) -> None:
    components = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) == components


@pytest.mark.parametrize(
    ("path", "request_schema", "response_schema"),
    [
        ("/layout-parsing", "LayoutParsingRequest", "LayoutParsingResponse"),
        ("/restructure-pages", "RestructurePagesRequest", "RestructurePagesResponse"),
    ],
)
def test_bodies_and_answers(document: dict[str, Any], path: str, request_schema: str, response_schema: str) -> None:
    operation = document["paths"][path]["post"]
    assert operation["requestBody"]["required"] is True
    media = operation["requestBody"]["content"]["application/json"]
    assert media["schema"] == {"$ref": f"#/components/schemas/{request_schema}"}
    getattr(contract, request_schema).model_validate(media["example"])
    assert set(operation["responses"]) == {"200", "400", "408", "413", "422", "500", "503", "504"}
    for status, response in operation["responses"].items():
        expected = response_schema if status == "200" else "ErrorEnvelope"
        assert response["description"]
        assert response["content"]["application/json"]["schema"] == {"$ref": f"#/components/schemas/{expected}"}
    assert "Retry-After" in operation["responses"]["503"]["headers"]


def test_every_field_has_type_description_default_and_example(document: dict[str, Any]) -> None:
    for name, described, is_required in fields(document):
        assert described.get("description") or "$ref" in described, name  # a $ref is described where it leads
        assert is_required or "default" in described, name
        is_nested = any(True for _ in references(described))
        assert is_nested or described.get("examples"), name
        assert {"type", "anyOf", "$ref", "const"} & described.keys(), name


@pytest.mark.parametrize("schema", ["LayoutParsingRequest", "RestructurePagesRequest"])
def test_the_examples_are_valid(document: dict[str, Any], schema: str) -> None:
    model = getattr(contract, schema)
    required = {"LayoutParsingRequest": {"file": "QUJD"}, "RestructurePagesRequest": {"pages": []}}[schema]
    for field, described in document["components"]["schemas"][schema]["properties"].items():
        assert field in model.model_fields
        for example in described.get("examples", []):
            model.model_validate(required | {field: example})
        if "default" in described:
            model.model_validate(required | {field: described["default"]})
    assert set(document["components"]["schemas"][schema]["properties"]) == set(model.model_fields)


def variant(described: dict[str, Any], kind: str) -> dict[str, Any]:
    """The schema of a field for values of one type."""
    found: dict[str, Any] = next(option for option in described["anyOf"] if option.get("type") == kind)
    return found


@pytest.mark.parametrize(
    ("field", "kind", "rule", "outside"),
    [
        ("layoutThreshold", "number", {"minimum": 0, "maximum": 1}, 1.1),
        ("layoutUnclipRatio", "number", {"exclusiveMinimum": 0}, 0),
        ("repetitionPenalty", "number", {"exclusiveMinimum": 0}, 0),
        ("temperature", "number", {"minimum": 0}, -0.1),
        ("topP", "number", {"exclusiveMinimum": 0, "maximum": 1}, 1.1),
        ("minPixels", "integer", {"exclusiveMinimum": 0}, 0),
        ("maxPixels", "integer", {"exclusiveMinimum": 0}, 0),
        ("maxNewTokens", "integer", {"exclusiveMinimum": 0}, 0),
        ("fileType", "integer", {"enum": [0, 1]}, 2),
        ("promptLabel", "string", {"enum": list(contract.PROMPT_LABELS)}, "text"),
        ("layoutMergeBboxesMode", "string", {"enum": list(contract.MERGE_MODES)}, "none"),
    ],
)
def test_ranges_are_documented_as_they_are_checked(
    document: dict[str, Any], field: str, kind: str, rule: dict[str, Any], outside: Any
) -> None:
    described = document["components"]["schemas"]["LayoutParsingRequest"]["properties"][field]
    assert variant(described, kind) == {"type": kind} | rule
    with pytest.raises(ValueError, match=field):
        contract.LayoutParsingRequest.model_validate({"file": "QUJD", field: outside})


def test_keys_are_in_the_document_when_they_are_asked_for(tmp_path: Path) -> None:
    api_keys.add(tmp_path / "keys", "someone")
    app = create_app(hps_settings.load({}, api_keys_file=tmp_path / "keys"))
    document = app.openapi()
    assert set(document["components"]["securitySchemes"]) == {"bearer", "header"}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert ("security" in operation) == (method == "post"), path
            assert ("401" in operation["responses"]) == (method == "post"), path
    assert "Retry-After" in document["paths"]["/layout-parsing"]["post"]["responses"]["429"]["headers"]


def test_keys_are_not_in_the_document_otherwise(document: dict[str, Any]) -> None:
    assert "securitySchemes" not in document["components"]
    assert all("security" not in operation for methods in document["paths"].values() for operation in methods.values())
