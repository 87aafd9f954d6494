"""What OpenAPI says about the endpoints: they read raw bytes, so the schemas are attached here by hand."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from hps import contract

REF = "#/components/schemas/{model}"

REQUESTS: tuple[type[BaseModel], ...] = (contract.LayoutParsingRequest, contract.RestructurePagesRequest)
RESPONSES: tuple[type[BaseModel], ...] = (
    contract.LayoutParsingResponse,
    contract.RestructurePagesResponse,
    contract.ErrorEnvelope,
)

ERRORS = {
    400: "The body is not JSON",
    408: "The body did not come at the least pace",
    413: "The body is larger than HPS_MAX_BODY_BYTES",
    422: "A field is missing or wrong, or the file cannot be used",
    500: "A stage of the service failed",
    503: "No place in line (with Retry-After), or a part of the service is away",
    504: "HPS_INFERENCE_TIMEOUT has passed",
}


def _content(model: type[BaseModel], example: dict[str, Any] | None = None) -> dict[str, Any]:
    media: dict[str, Any] = {"schema": {"$ref": REF.format(model=model.__name__)}}
    if example is not None:
        media["example"] = example
    return {"application/json": media}


def _error(status: int, description: str) -> dict[str, Any]:
    example = {"logId": "5d7e4c9e-5a5e-4a0f-9f2e-0f6f0c6a1b7d", "errorCode": status, "errorMsg": description}
    response: dict[str, Any] = {"description": description, "content": _content(contract.ErrorEnvelope, example)}
    if status in (429, 503):
        response["headers"] = {
            "Retry-After": {
                "description": "Seconds to wait",
                "schema": {"type": "integer", "minimum": 1, "maximum": 60},
            }
        }
    return response


def _endpoint(request: type[BaseModel], response: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """Arguments for the route's decorator."""
    return {
        "response_model": None,
        "responses": {
            200: {"description": "Success", "content": _content(response)},
            **{status: _error(status, description) for status, description in ERRORS.items()},
        },
        "openapi_extra": {"requestBody": {"required": True, "content": _content(request, example)}},
    }


def _state(message: str) -> dict[str, Any]:
    example = {"logId": "5d7e4c9e-5a5e-4a0f-9f2e-0f6f0c6a1b7d", "errorCode": 0, "errorMsg": message}
    return {"description": message, "content": _content(contract.ErrorEnvelope, example)}


LAYOUT_PARSING = _endpoint(
    contract.LayoutParsingRequest,
    contract.LayoutParsingResponse,
    {"file": "https://example.com/paper.pdf", "fileType": 0, "visualize": False},
)
RESTRUCTURE_PAGES = _endpoint(
    contract.RestructurePagesRequest,
    contract.RestructurePagesResponse,
    {"pages": [{"prunedResult": {"width": 1190, "height": 1684, "parsing_res_list": []}}], "concatenatePages": True},
)
HEALTH: dict[str, Any] = {
    "response_model": None,
    "responses": {200: _state("Healthy"), 503: _error(503, "The service is stopping")},
}
READY: dict[str, Any] = {
    "response_model": None,
    "responses": {200: _state("Ready"), 503: _error(503, "Triton server not ready")},
}


KEY_ERRORS = {
    401: "No API key, or one that is not known",
    429: "This key has HPS_MAX_REQUESTS_PER_KEY requests here already (with Retry-After)",
}
KEY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def document(app: FastAPI, *, with_keys: bool) -> dict[str, Any]:
    """The OpenAPI document, with the component schemas that the routes refer to. with_keys: endpoints ask for a key."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        _, requests = models_json_schema([(model, "validation") for model in REQUESTS], ref_template=REF)
        _, responses = models_json_schema([(model, "serialization") for model in RESPONSES], ref_template=REF)
        schema.setdefault("components", {})["schemas"] = requests["$defs"] | responses["$defs"]
        if with_keys:
            schema["components"]["securitySchemes"] = KEY_SCHEMES
            for operation in (path["post"] for path in schema["paths"].values() if "post" in path):
                operation["security"] = [{name: []} for name in KEY_SCHEMES]
                operation["responses"] |= {str(status): _error(status, what) for status, what in KEY_ERRORS.items()}
        app.openapi_schema = schema
    return app.openapi_schema
