"""Cases of the wire contract and of a whole page: request validation, response form, page to answer (SPEC A, D, E)."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from hps import answer, assembly, config, contract, options, recognition
from hps.conformance.image_spec import image
from hps.contract import LayoutParsingRequest, RestructurePagesRequest
from hps.document import Region
from hps.errors import InvalidInput

_MODELS: Final[Mapping[str, type[BaseModel]]] = {
    "InferRequest": LayoutParsingRequest,
    "RestructurePagesRequest": RestructurePagesRequest,
}
_LOG_ID: Final = "L"


def _request_validation(case: Mapping[str, Any]) -> dict[str, Any]:
    model = _MODELS[case["model"]]
    raw = case["raw"]
    try:
        request = model.model_validate_json(json.dumps(case["body"]) if raw is None else raw)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        shown = [{"loc": list(p["loc"]), "type": p["type"], "msg": p["msg"]} for p in problems]
        return {"ok": False, "errorCode": 422, "errors": shown}
    read, sent = json.loads(request.model_dump_json()), case["body"]
    return {
        "ok": True,
        "parsed": {name: value for name, value in read.items() if name in sent and sent[name] != value},
        "defaults": {name: value for name, value in read.items() if name not in sent},
    }


def _response_serialisation(case: Mapping[str, Any]) -> Any:
    if "result" not in case:
        return json.loads(contract.failure(_LOG_ID, InvalidInput()))
    result = dict(case["result"])
    pages = [
        contract.without_nulls(page | {"markdown": contract.without_nulls(page["markdown"])})
        for page in result["layoutParsingResults"]
    ]
    return json.loads(contract.success(_LOG_ID, result | {"layoutParsingResults": pages}))


def _end_to_end_page(case: Mapping[str, Any]) -> dict[str, Any]:
    fields = {_camel(name): value for name, value in case["options"].items()}
    body = {"file": "x", "prettifyMarkdown": case["pretty"], "showFormulaNumber": case["show_formula_number"]} | fields
    request = contract.parse_request(LayoutParsingRequest, json.dumps(body))
    wanted = options.resolve(request, config.for_release("PaddleOCR-VL-1.6"), has_orientation=False)
    regions = [_region(box) for box in case["boxes"]] if wanted.settings.use_layout_detection else None
    plan = recognition.plan(image(case["image"]), regions, wanted.recognition, wanted.prompt_label)
    answers = {task.block_index: case["answers"][task.prompt] for task in plan.tasks}
    page = assembly.page(plan, answers, wanted, angle=None)
    result = answer.page_result(page, dict.fromkeys(page.pictures, ""), wanted.render)
    return {
        "prunedResult": result["prunedResult"],
        "markdown": result["markdown"]["text"],
        "markdown_image_keys": sorted(result["markdown"]["images"]),
        "output_image_keys": None,
    }


def _region(box: Mapping[str, Any]) -> Region:
    outline = box.get("polygon_points")
    return Region(
        cls_id=box["cls_id"],
        label=box["label"],
        score=box["score"],
        box=tuple(box["coordinate"]),
        order=box["order"],
        polygon=None if outline is None else tuple((x, y) for x, y in outline),
    )


def _camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


GROUPS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "request_validation": _request_validation,
    "response_serialisation": _response_serialisation,
    "end_to_end_page": _end_to_end_page,
}
