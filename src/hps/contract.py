"""The wire contract of /layout-parsing and /restructure-pages (SPEC A): the only place with camelCase.

Requests are validated here for the gateway and for direct Triton clients alike, so the same mistake gets the same
envelope on every way in. Field types follow the official schema (3.7.2), unions included, because clients see their
names in error locations; what the official schema refuses by accident (a pair for layoutUnclipRatio) is accepted.
"""

import json
import re
import sys
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema, field_validator, model_validator
from pydantic_core import to_json

from hps.errors import HpsError, InvalidRequest, MalformedJson

PROMPT_LABELS = ("ocr", "formula", "table", "chart", "seal", "spotting")
MERGE_MODES = ("large", "small", "union")
OUTPUT_FORMATS = ("docx",)

# The model keeps its error envelopes below this many bytes; the gateway relays anything larger without parsing it.
ERROR_ENVELOPE_LIMIT = 64 * 1024

# Names of the tensors that carry request and envelope as UTF-8 JSON (SPEC A.9) and of our request parameters.
INPUT_TENSOR = "input"
OUTPUT_TENSOR = "output"
TIMEOUT_PARAMETER = "hps_timeout_us"  # time left when the gateway sent the request
PROBE_PARAMETER = "hps_probe"  # answer after touching every stage but the VLM; takes no slot

LAYOUT_PARSING = "layout-parsing"
RESTRUCTURE_PAGES = "restructure-pages"

_CLASS_ID = re.compile(r"[0-9]{1,9}")

Positive = Annotated[int, Field(gt=0)]


def _one_of(values: tuple[str, ...]) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "enum": list(values)})


# The ranges below are checked by validators of ours, whose messages clients know; these only document them.
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
_RATIO = {"type": "number", "exclusiveMinimum": 0}
_RATIO_PAIR = {"type": "array", "items": _RATIO, "minItems": 2, "maxItems": 2}
_MERGE_MODE = {"type": "string", "enum": list(MERGE_MODES)}


def _by_class_id(*schemas: dict[str, Any]) -> WithJsonSchema:
    values = schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}
    return WithJsonSchema({"type": "object", "additionalProperties": values})


Share = Annotated[float, WithJsonSchema(_SHARE)]
Ratio = Annotated[float, WithJsonSchema(_RATIO)]


def _number(value: Any) -> bool:
    """A number that a float can hold: JSON's integers may be too large, and its readers let NaN and Infinity in."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


class _Request(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False, protected_namespaces=())

    outputFormats: list[Annotated[str, _one_of(OUTPUT_FORMATS)]] | None = Field(
        None, description="Further formats to export; only `docx`.", examples=[["docx"]]
    )
    logId: str | None = Field(
        None, description="Echoed in the answer and in the logs; a UUID4 if absent.", examples=["my-document-17"]
    )

    @field_validator("outputFormats")
    @classmethod
    def _formats(cls, value: list[str] | None) -> list[str] | None:
        for entry in value or ():
            if entry not in OUTPUT_FORMATS:
                raise ValueError(
                    f"Unsupported `outputFormats` entry {entry!r}. Supported values: {list(OUTPUT_FORMATS)}"
                )
        return value


class LayoutParsingRequest(_Request):
    """`null` of an optional field means: as the running pipeline is configured."""

    model_config = ConfigDict(title="InferRequest")

    file: str = Field(
        description="http(s) URL of the document, or its bytes in Base64.", examples=["https://example.com/paper.pdf"]
    )
    fileType: Literal[0, 1] | None = Field(
        None, description="0 PDF, 1 image (multi-page TIFF included); null: from a URL's extension.", examples=[0]
    )
    useDocOrientationClassify: bool | None = Field(None, description="Turn pages upright first.", examples=[False])
    useDocUnwarping: bool | None = Field(None, description="Flatten photographed pages first.", examples=[False])
    useLayoutDetection: bool | None = Field(
        None, description="false: the whole page is one block labelled by promptLabel.", examples=[True]
    )
    useChartRecognition: bool | None = Field(None, description="Charts become tables.", examples=[False])
    useSealRecognition: bool | None = Field(None, description="Read the text of seals.", examples=[False])
    useOcrForImageBlock: bool | None = Field(None, description="Read the text in pictures too.", examples=[False])
    layoutThreshold: Share | Annotated[dict[str, Any], _by_class_id(_SHARE)] | None = Field(
        None, description="Least score of a box, 0 to 1; an object gives it by class id.", examples=[0.3, {"22": 0.4}]
    )
    layoutNms: bool | None = Field(None, description="Drop boxes that overlap a better one.", examples=[True])
    layoutUnclipRatio: (
        Ratio | tuple[Ratio, Ratio] | Annotated[dict[str, Any], _by_class_id(_RATIO, _RATIO_PAIR)] | None
    ) = Field(
        None,
        description="Grow boxes about their centre, > 0: one ratio, [width, height], or an object by class id.",
        examples=[1.0, [1.0, 1.2], {"22": [1.1, 1.1]}],
    )
    layoutMergeBboxesMode: (
        Annotated[str, _one_of(MERGE_MODES)] | Annotated[dict[str, Any], _by_class_id(_MERGE_MODE)] | None
    ) = Field(None, description="Which of nested boxes stay: large, small, union; or by class id.", examples=["large"])
    layoutShapeMode: Literal["rect", "quad", "poly", "auto"] = Field(
        "auto", description="Shape of the returned outlines.", examples=["auto"]
    )
    promptLabel: Annotated[str, _one_of(PROMPT_LABELS)] | None = Field(
        None, description=f"One of {', '.join(PROMPT_LABELS)}; used without layout detection.", examples=["ocr"]
    )
    formatBlockContent: bool | None = Field(None, description="block_content as Markdown.", examples=[False])
    repetitionPenalty: Ratio | None = Field(None, description="Sampling, > 0.", examples=[1.0])
    temperature: Annotated[float, WithJsonSchema({"type": "number", "minimum": 0})] | None = Field(
        None, description="Sampling, ≥ 0; 0 is greedy.", examples=[0]
    )
    topP: Annotated[float, WithJsonSchema(_RATIO | {"maximum": 1})] | None = Field(
        None, description="Sampling, > 0 and ≤ 1.", examples=[1.0]
    )
    minPixels: Positive | None = Field(None, description="Least pixels of a block given to the VLM.", examples=[112896])
    maxPixels: Positive | None = Field(None, description="Most pixels of a block given to the VLM.", examples=[1003520])
    maxNewTokens: Positive | None = Field(None, description="Most tokens of a block; null: 4096.", examples=[4096])
    mergeLayoutBlocks: bool | None = Field(None, description="Read text split over columns as one.", examples=[True])
    markdownIgnoreLabels: list[str] | None = Field(
        None, description="Labels left out of the Markdown.", examples=[["header", "footer", "number"]]
    )
    vlmExtraArgs: dict[str, Any] | None = Field(
        None,
        description="Sampling by name, and {ocr,table,chart,formula,seal}_{min,max}_pixels.",
        examples=[{"table_max_pixels": 1605632}],
    )
    prettifyMarkdown: bool = Field(True, description="Markdown with HTML for centring and tables.", examples=[True])
    showFormulaNumber: bool = Field(False, description="Formula numbers become \\tag.", examples=[False])
    returnMarkdownImages: bool = Field(
        True, description="Return the pictures that the Markdown refers to.", examples=[True]
    )
    restructurePages: bool = Field(
        False, description="Restructure this document's pages as /restructure-pages does.", examples=[False]
    )
    mergeTables: bool = Field(True, description="With restructurePages: join tables over pages.", examples=[True])
    relevelTitles: bool = Field(True, description="With restructurePages: find heading levels.", examples=[True])
    visualize: bool | None = Field(None, description="Return inputImage and outputImages.", examples=[False])
    allowPartial: bool = Field(
        False,
        description="Ours: when pages of a document cannot be parsed, return the others; `hps.failedPages` says which.",
        examples=[True],
    )

    @field_validator("layoutThreshold")
    @classmethod
    def _threshold(cls, value: float | dict[str, Any] | None) -> float | dict[str, Any] | None:
        if isinstance(value, dict):
            for key, entry in value.items():
                if not _number(entry):
                    kind = type(entry).__name__
                    raise ValueError(f"`layoutThreshold` value for key {key!r} must be a number; got: {kind}")
                if not 0 <= entry <= 1:
                    raise ValueError(f"`layoutThreshold` value for key {key!r} must be between 0 and 1; got: {entry}")
            _class_ids("layoutThreshold", value)
        elif value is not None and not 0 <= value <= 1:
            raise ValueError(f"`layoutThreshold` must be between 0 and 1; got: {value}")
        return value

    @field_validator("layoutUnclipRatio")
    @classmethod
    def _unclip(cls, value: Any) -> Any:
        if isinstance(value, dict):
            for key, entry in value.items():
                if isinstance(entry, list) and len(entry) != 2:
                    raise ValueError(
                        f"`layoutUnclipRatio` value for key {key!r} must be two numbers; got: {len(entry)} values"
                    )
                pair = entry if isinstance(entry, list) else [entry]
                if not all(_number(ratio) for ratio in pair):
                    raise ValueError(f"`layoutUnclipRatio` value for key {key!r} must be a number or two numbers")
                if not all(ratio > 0 for ratio in pair):
                    raise ValueError(f"`layoutUnclipRatio` value for key {key!r} must be > 0; got: {entry}")
            _class_ids("layoutUnclipRatio", value)
        elif value is not None:
            for ratio in value if isinstance(value, tuple) else (value,):
                if not ratio > 0:
                    raise ValueError(f"`layoutUnclipRatio` must be > 0; got: {ratio}")
        return value

    @field_validator("layoutMergeBboxesMode")
    @classmethod
    def _merge_mode(cls, value: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
        choices = ", ".join(MERGE_MODES)
        if isinstance(value, dict):
            for entry in value.values():
                if entry not in MERGE_MODES:
                    raise ValueError(
                        f"`layoutMergeBboxesMode` dictionary value must be one of: {choices}; got: {entry}"
                    )
            _class_ids("layoutMergeBboxesMode", value)
        elif value is not None and value not in MERGE_MODES:
            raise ValueError(f"`layoutMergeBboxesMode` must be one of: {choices}; got: {value}")
        return value

    @field_validator("promptLabel")
    @classmethod
    def _prompt(cls, value: str | None) -> str | None:
        if value is not None and value not in PROMPT_LABELS:
            raise ValueError(f"`promptLabel` must be one of: {', '.join(PROMPT_LABELS)}; got: {value}")
        return value

    @field_validator("repetitionPenalty")
    @classmethod
    def _penalty(cls, value: float | None) -> float | None:
        if value is not None and not value > 0:
            raise ValueError(f"`repetitionPenalty` must be > 0; got: {value}")
        return value

    @field_validator("temperature")
    @classmethod
    def _temperature(cls, value: float | None) -> float | None:
        if value is not None and value < 0:
            raise ValueError(f"`temperature` must be ≥ 0; got: {value}")
        return value

    @field_validator("topP")
    @classmethod
    def _top_p(cls, value: float | None) -> float | None:
        if value is not None and not 0 < value <= 1:
            raise ValueError(f"`topP` must be > 0 and ≤ 1; got: {value}")
        return value

    @model_validator(mode="after")
    def _pixels(self) -> Self:
        if self.minPixels is not None and self.maxPixels is not None and self.minPixels > self.maxPixels:
            raise ValueError(f"`minPixels` ({self.minPixels}) cannot be greater than `maxPixels` ({self.maxPixels})")
        return self


def _class_ids(field: str, value: dict[str, Any]) -> None:
    """Keys of per-class objects are class ids; JSON makes them strings (SPEC Q2: ours reads them as numbers)."""
    for key in value:
        if not _CLASS_ID.fullmatch(key.strip()):
            raise ValueError(f"`{field}` keys must be class ids; got: {key!r}")


class RestructuredPage(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    prunedResult: dict[str, Any] = Field(
        description="`prunedResult` of a page of /layout-parsing.",
        examples=[{"width": 1190, "height": 1684, "parsing_res_list": []}],
    )
    markdownImages: dict[str, str] | None = Field(
        None, description="`markdown.images` of that page.", examples=[{"imgs/img_in_seal_box_1_2_3_4.jpg": "/9j/"}]
    )


class RestructurePagesRequest(_Request):
    pages: list[RestructuredPage] = Field(description="The pages of one document, in order.")
    mergeTables: bool = Field(True, description="Join tables that go on on the next page.", examples=[True])
    relevelTitles: bool = Field(True, description="Find heading levels over the whole document.", examples=[True])
    concatenatePages: bool = Field(False, description="Answer with one page that holds all blocks.", examples=[False])
    prettifyMarkdown: bool = Field(True, description="Markdown with HTML for centring and tables.", examples=[True])
    showFormulaNumber: bool = Field(False, description="Formula numbers become \\tag.", examples=[False])
    returnMarkdownImages: bool = Field(True, description="Pass the pictures through.", examples=[True])


# --- answers: for OpenAPI and for typed clients; the model writes them as plain JSON ---


class Markdown(BaseModel):
    text: str = Field(description="The page as Markdown.", examples=["# Title\n\nText"])
    images: dict[str, str] | None = Field(
        None,
        description="Relative path → Base64 JPEG or URL.",
        examples=[{"imgs/img_in_seal_box_1_2_3_4.jpg": "/9j/"}],
    )


class Export(BaseModel):
    content: str = Field(description="Base64 or URL.", examples=["UEsDBBQ="])
    fileName: str = Field(description="Name to save it under.", examples=["page_0.docx"])


class PageResult(BaseModel):
    prunedResult: dict[str, Any] = Field(
        description="Size, settings and blocks of the page (parsing_res_list, …).",
        examples=[{"width": 1190, "height": 1684, "parsing_res_list": []}],
    )
    markdown: Markdown = Field(description="The page as Markdown and its pictures.")
    outputImages: dict[str, str] | None = Field(
        None, description="Name → Base64 JPEG or URL; absent unless visualize.", examples=[{"layout_det_res": "/9j/"}]
    )
    inputImage: str | None = Field(
        None, description="The page as loaded, Base64 JPEG or URL; absent unless visualize.", examples=["/9j/"]
    )
    exports: dict[str, Export] | None = Field(None, description="Format → file; absent unless outputFormats.")


class PageSize(BaseModel):
    width: int = Field(description="Pixels of the page as loaded.", examples=[1190])
    height: int = Field(description="Pixels of the page as loaded.", examples=[1684])


class ImageInfo(PageSize):
    type: Literal["image"] = Field(description="One image.", examples=["image"])


class DocumentInfo(BaseModel):
    numPages: int = Field(description="Pages that were processed.", examples=[1])
    pages: list[PageSize] = Field(description="Size of each page that was processed.")
    type: Literal["pdf", "tiff"] = Field(description="Kind of the document.", examples=["pdf"])


class StoppedBlock(BaseModel):
    page: int = Field(description="Index of the page.", examples=[0])
    block: int = Field(description="Place in the page's parsing_res_list.", examples=[7])
    reason: Literal["repetition", "tokens", "time"] = Field(
        description="It repeated itself, or reached its token limit or its time.", examples=["repetition"]
    )


class FailedPage(BaseModel):
    """A page that could not be parsed, in an answer to `allowPartial`. Its entry in the results is empty."""

    page: int = Field(description="Index in layoutParsingResults.", examples=[2])
    errorCode: int = Field(description="As of a request that failed over it.", examples=[422])
    errorMsg: str = Field(description="What was wrong.", examples=["Page 3 of the PDF is damaged"])


class HpsInfo(BaseModel):
    """What this kit adds to the official answer."""

    release: str = Field(description="Pipeline release.", examples=["PaddleOCR-VL-1.6"])
    version: str = Field(description="Version of this kit.", examples=["0.1.0"])
    totalPages: int | None = Field(None, description="Pages of the document.", examples=[12])
    processedPages: int = Field(
        description="Pages in this answer; fewer than totalPages under a page limit.", examples=[12]
    )
    blankPages: list[int] | None = Field(None, description="Indices of pages without ink.", examples=[[3]])
    failedPages: list[FailedPage] | None = Field(None, description="Pages that could not be parsed (allowPartial).")
    stoppedBlocks: list[StoppedBlock] | None = Field(
        None, description="Blocks whose text ends before the model wanted to."
    )


class LayoutParsingResult(BaseModel):
    layoutParsingResults: list[PageResult] = Field(description="The pages, in order.")
    dataInfo: ImageInfo | DocumentInfo = Field(description="What the input was.")
    hps: HpsInfo = Field(description="What this kit adds to the official answer.")


class RestructurePagesResult(BaseModel):
    layoutParsingResults: list[PageResult] = Field(description="The pages, or the one page that they became.")
    hps: HpsInfo = Field(description="What this kit adds to the official answer.")


class _Envelope(BaseModel):
    logId: str = Field(
        description="The request's logId, or the UUID4 it was given.", examples=["5d7e4c9e-5a5e-4a0f-9f2e-0f6f0c6a1b7d"]
    )


class ErrorEnvelope(_Envelope):
    errorCode: int = Field(description="0, or the HTTP status.", examples=[422])
    errorMsg: str = Field(description="What is wrong.", examples=["Input file is invalid: the file is empty"])


class LayoutParsingResponse(_Envelope):
    result: LayoutParsingResult = Field(description="The parsed document.")
    errorCode: Literal[0] = Field(0, description="Success.", examples=[0])
    errorMsg: Literal["Success"] = Field("Success", description="Success.", examples=["Success"])


class RestructurePagesResponse(_Envelope):
    result: RestructurePagesResult = Field(description="The restructured document.")
    errorCode: Literal[0] = Field(0, description="Success.", examples=[0])
    errorMsg: Literal["Success"] = Field("Success", description="Success.", examples=["Success"])


# --- reading and writing bodies ---

R = TypeVar("R", bound=_Request)


def parse_request(model: type[R], body: bytes | str) -> R:
    """The validated request. Raises MalformedJson (400) or InvalidRequest (422); the text never repeats the input."""
    if not body.strip():
        raise InvalidRequest("body: Field required")
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise _translated(model, error) from None


def _translated(model: type[BaseModel], error: ValidationError) -> HpsError:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    first = problems[0]
    if first["type"] == "json_invalid":
        return MalformedJson(first["msg"])
    if first["type"] == "model_type" and not first["loc"]:
        is_null = error.errors(include_url=False)[0]["input"] is None
        return InvalidRequest("body: Field required" if is_null else "body: Input should be a valid dictionary")
    count = f"{len(problems)} validation error{'s' if len(problems) > 1 else ''}"
    title = model.model_config.get("title") or model.__name__
    lines = [f"{count} for {title}"]
    for problem in problems:
        if problem["loc"]:
            lines.append(".".join(map(str, problem["loc"])))
        lines.append(f"  {problem['msg']} [type={problem['type']}]")
    return InvalidRequest("\n".join(lines)[: ERROR_ENVELOPE_LIMIT // 8])


def log_id_of(body: bytes) -> str | None:
    """The logId of a body that failed validation, if it can be had; never raises. Always text that UTF-8 can carry:
    this reader, other than the one above, lets lone surrogates pass."""
    try:
        value = json.loads(body)["logId"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) and value else None


def success(log_id: str, result: dict[str, Any]) -> bytes:
    """The envelope of an answer. `result` is plain JSON data; nulls in it stay as they are.

    What a client sent goes back in it, and readers of JSON let NaN and 1e999 in; JSON cannot say them: they are null.
    """
    envelope = {"logId": log_id, "result": result, "errorCode": 0, "errorMsg": "Success"}
    return to_json(envelope, inf_nan_mode="null")


def failure(log_id: str, error: HpsError) -> bytes:
    """The envelope of an error, always below ERROR_ENVELOPE_LIMIT."""
    return to_json({"logId": log_id[:1024], "errorCode": error.status, "errorMsg": error.message[:8192]})


def without_nulls(value: dict[str, Any]) -> dict[str, Any]:
    """Drops absent fields of the declared schema (SPEC A.2); nested free-form objects are not touched."""
    return {key: entry for key, entry in value.items() if entry is not None}
