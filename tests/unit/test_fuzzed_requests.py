"""Whatever bytes come, a handler gives an envelope or an error of the client's: never the unexpected (SPEC A.6)."""

import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from hps import contract
from hps.errors import ClientError, HpsError
from hps.handlers import Parser, Restructurer
from hps.inputs.fetch import UrlFetcher
from hps.inputs.pool import DecodePool
from hps.layout.labels import LABELS
from hps.triton.serving import Handler
from tests.unit import pipeline_parts as parts

FILE = parts.png(parts.page(40, 30))
# As the official examples look, odd in every place that JSON allows.
HUGE = 10**400
numbers = st.one_of(
    st.integers(-3, 3000),
    st.integers(),
    st.floats(),
    st.sampled_from([HUGE, -HUGE, 1e308, -1e308, 5e-324, 2**31, 2**63, 2**64, 0, -0.0, 1, True]),
)
texts = st.one_of(st.text(max_size=8), st.sampled_from(["\ud800", "\x00", "<table>", "<fcel>", "# 1.2 x", "1.", "$$"]))
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
by_class = st.dictionaries(
    st.one_of(st.integers(0, 30).map(str), st.sampled_from(["²", "٣", " 22 ", "-1", "9" * 400, "x", ""])),
    st.one_of(numbers, st.lists(numbers, max_size=3), st.sampled_from(["large", "small", "union"])),
    max_size=3,
)


flag = st.booleans()
parsing_fields: dict[str, st.SearchStrategy[Any]] = {
    "logId": st.text(max_size=12),
    "outputFormats": st.just(["docx"]),
    "layoutThreshold": st.sampled_from([0, 0.5, {"22": 0.1}]),
    "layoutUnclipRatio": st.sampled_from([1.1, [0.9, 1.1], {"14": [0.5, 2]}, {"21": 0.001}]),
    "layoutMergeBboxesMode": st.sampled_from(["large", "small", "union", {"22": "small"}]),
    "layoutShapeMode": st.sampled_from(["rect", "quad", "poly", "auto"]),
    "promptLabel": st.sampled_from(contract.PROMPT_LABELS),
    "markdownIgnoreLabels": st.lists(st.sampled_from(["text", "image", ""]), max_size=2),
    "vlmExtraArgs": st.sampled_from([{"temperature": 0.5}, {"ocr_max_pixels": 500_000}, {"unknown": [None]}]),
    **dict.fromkeys(("repetitionPenalty", "temperature", "topP"), st.sampled_from([0.5, 1])),
    **dict.fromkeys(("minPixels", "maxPixels", "maxNewTokens"), st.integers(1, 3000)),
    **dict.fromkeys(
        (
            *("useDocOrientationClassify", "useLayoutDetection", "useChartRecognition", "useSealRecognition"),
            *("useOcrForImageBlock", "layoutNms", "formatBlockContent", "mergeLayoutBlocks", "prettifyMarkdown"),
            *("showFormulaNumber", "returnMarkdownImages", "restructurePages", "mergeTables", "relevelTitles"),
            "visualize",
        ),
        flag,
    ),
}
odd_parsing_fields = {
    "file": st.one_of(
        st.sampled_from(["http://h/a.png", "http://[", "https://h/a", "aGk=", "é", "", FILE[:-9]]), anything
    ),
    "fileType": st.one_of(st.just(0), anything),
    "useDocUnwarping": st.one_of(st.just(False), anything),
    "vlmExtraArgs": st.dictionaries(
        st.sampled_from(["temperature", "top_p", "max_new_tokens", "min_pixels", "ocr_max_pixels"]), scalars, max_size=2
    ),
    **dict.fromkeys(("layoutThreshold", "layoutUnclipRatio", "layoutMergeBboxesMode"), st.one_of(numbers, by_class)),
    **dict.fromkeys(("repetitionPenalty", "temperature", "topP", "minPixels", "maxPixels", "maxNewTokens"), numbers),
    **dict.fromkeys(("logId", "outputFormats", "markdownIgnoreLabels", "layoutShapeMode", "promptLabel"), anything),
}

boxes = st.tuples(*[st.integers(-10, 1500)] * 4).map(list)
contents = st.one_of(
    texts,
    st.sampled_from(
        [
            "<table><tr><td rowspan='9' colspan='9'>a</td></tr></table>",
            f"<table><tr><td rowspan='{10**9}'>a</td><td colspan='{10**30}'>b</td></tr><tr><td>c</td></tr></table>",
            "<table><tr><td>a</td><td>b</td></tr><tr><td>c</td><td>d</td></tr></table>",
            "<table>" * 2000,
            "<td><tr></table><img src='x'>",
            "9." * 3000,
            "a|b\nc",
        ]
    ),
)
block_fields = {
    "block_label": st.sampled_from([*LABELS, "table", "image", "paragraph_title", "spotting", "?"]),
    "block_content": contents,
    "block_bbox": boxes,
    "group_id": st.integers(-1, 5),
    "block_polygon_points": st.lists(st.lists(numbers, min_size=2, max_size=2), max_size=3),
}
odd_block_fields = dict.fromkeys(block_fields, anything) | {"block_bbox": st.lists(numbers, min_size=4, max_size=4)}
settings_fields = dict.fromkeys(
    ("use_layout_detection", "use_chart_recognition", "use_seal_recognition", "format_block_content"), flag
) | {"markdown_ignore_labels": st.lists(st.sampled_from(["text", ""]), max_size=2)}
PICTURE_NAME = "imgs/img_in_image_box_1_2_3_4.jpg"


@st.composite
def mostly(draw: st.DrawFn, fields: dict[str, Any], odd_fields: dict[str, Any] | None = None) -> dict[str, Any]:
    """All of the fields as they should be, or in one of three one or two of them not, or missing."""
    made = {name: draw(field) for name, field in fields.items()}
    odd = odd_fields or dict.fromkeys(fields, anything)
    is_odd = draw(st.integers(0, 2)) == 2
    for name in draw(st.lists(st.sampled_from(sorted(odd)), min_size=1, max_size=2)) if is_odd else ():
        value = draw(st.one_of(st.just(...), odd[name]))
        if value is ...:
            made.pop(name, None)
        else:
            made[name] = value
    return made


@st.composite
def parsing_bodies(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(sorted(parsing_fields)), max_size=6, unique=True))
    given_fields = {name: parsing_fields[name] for name in names}
    body = draw(mostly({"file": st.just(FILE), "fileType": st.just(1)} | given_fields, odd_parsing_fields))
    return body


@st.composite
def restructuring_bodies(draw: st.DrawFn) -> dict[str, Any]:
    block = mostly(block_fields, odd_block_fields)
    pruned = mostly(
        {
            "model_settings": mostly(settings_fields),
            "width": st.one_of(st.integers(0, 2000), st.just(HUGE)),
            "height": st.integers(0, 2000),
            "page_count": st.none(),
            "parsing_res_list": st.lists(block, max_size=3),
            "layout_det_res": st.sampled_from([{"boxes": []}, [None], {"a": HUGE, "b": float("nan")}]),
        }
    )
    picture = st.sampled_from([FILE, "http://", "http://h/", "data:image/png;base64," + FILE, "data:,x", "é", ""])
    page = mostly(
        {"prunedResult": pruned, "markdownImages": st.dictionaries(st.just(PICTURE_NAME), picture, max_size=1)}
    )
    flags = ("mergeTables", "relevelTitles", "concatenatePages", "prettifyMarkdown", "returnMarkdownImages")
    return draw(
        mostly(
            {"pages": st.lists(page, max_size=3), "outputFormats": st.one_of(st.none(), st.just(["docx"]))}
            | dict.fromkeys(flags, flag)
        )
    )


class Handlers:
    """Both, on a loop that lives as long as the module."""

    def __init__(self, runner: asyncio.Runner, parsing: Handler, restructuring: Handler) -> None:
        self._runner = runner
        self.parsing = parsing
        self.restructuring = restructuring

    def answer(self, handler: Handler, body: bytes) -> dict[str, Any]:
        """The envelope, as RequestServer makes it; fails for what would have been a 500."""

        async def handle() -> bytes:
            context = parts.context("made-by-the-gateway")
            try:
                return await handler.handle(body, context)
            except HpsError as error:
                assert isinstance(error, ClientError), f"status {error.status}: {error!r}"
                written = contract.failure(contract.log_id_of(body) or context.id, error)
                assert len(written) < contract.ERROR_ENVELOPE_LIMIT
                return written

        return parts.envelope(self._runner.run(handle()))


@pytest.fixture(scope="module")
def handlers() -> Iterator[Handlers]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def start() -> Handlers:
            pool = DecodePool(1)
            await pool.start()
            stack.push_async_callback(pool.close)
            layout = parts.Layout(rows=[parts.WHOLE, (14, 0.8, 0.1, 0.1, 0.9, 0.5, 1), (21, 0.7, 0, 0.5, 1, 1, 2)])
            made = await stack.enter_async_context(parts.assembled(pool, layout))
            executor = ThreadPoolExecutor(2)
            stack.callback(executor.shutdown)
            restructurer = Restructurer("r", executor, UrlFetcher("off"), None)
            return Handlers(runner, Parser(made.pipeline, made.stages), restructurer)

        yield runner.run(start())
        runner.run(stack.aclose())


few = settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@few
@given(parsing_bodies())
def test_parsing(handlers: Handlers, body: Any) -> None:
    event(str(handlers.answer(handlers.parsing, json.dumps(body).encode())["errorCode"]))


@few
@given(restructuring_bodies())
def test_restructuring(handlers: Handlers, body: Any) -> None:
    event(str(handlers.answer(handlers.restructuring, json.dumps(body).encode())["errorCode"]))


@few
@given(st.one_of(st.binary(max_size=40), anything.map(lambda value: json.dumps(value).encode())))
def test_bodies_that_are_no_requests(handlers: Handlers, body: bytes) -> None:
    for handler in (handlers.parsing, handlers.restructuring):
        assert handlers.answer(handler, body)["errorCode"] in (400, 422)


# --- what broke once, or nearly ---


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"vlmExtraArgs": {"temperature": HUGE}}, 422),
        ({"vlmExtraArgs": {"max_new_tokens": HUGE}}, 422),
        ({"vlmExtraArgs": {"top_p": float("nan")}}, 422),
        ({"vlmExtraArgs": {"min_pixels": 10**30}}, 0),
        ({"minPixels": HUGE}, 0),
        ({"layoutUnclipRatio": {"22": HUGE}}, 422),
        ({"layoutUnclipRatio": {"22": float("inf")}}, 422),
        ({"layoutUnclipRatio": float("inf")}, 422),
        ({"layoutUnclipRatio": 1e308}, 0),
        ({"layoutUnclipRatio": [1e-300, 1e300], "layoutShapeMode": "poly"}, 0),
        ({"layoutThreshold": {"²": 0.5}}, 422),
        ({"layoutThreshold": {"9" * 5000: 0.5}}, 422),
        ({"layoutThreshold": {" 22 ": 0.5}}, 0),
        ({"layoutMergeBboxesMode": {"3": ["large"]}}, 422),
        ({"layoutMergeBboxesMode": {"3": {}}}, 422),
        ({"logId": "\ud800"}, 400),
        ({"file": "http://h:99999/a.png"}, 422),
        ({"file": "\x00"}, 422),
        ({"unknown": json.loads("[" * 150 + "]" * 150)}, 0),
        ({"unknown": json.loads("[" * 300 + "]" * 300)}, 400),
    ],
    ids=lambda value: str(value)[:40],
)
def test_odd_parsing_requests(handlers: Handlers, fields: dict[str, Any], status: int) -> None:
    body = {"file": FILE, "fileType": 1, "visualize": True} | fields
    assert handlers.answer(handlers.parsing, json.dumps(body).encode())["errorCode"] == status


def sent_back(*blocks: dict[str, Any], **changes: Any) -> dict[str, Any]:
    whole = [{"block_label": "image", "block_content": "x", "block_bbox": [1, 2, 3, 4]} | block for block in blocks]
    pruned = {"model_settings": {}, "width": 100, "height": 100, "page_count": None, "layout_det_res": {}}
    return {"pages": [{"prunedResult": pruned | {"parsing_res_list": whole} | changes}] * 2}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (sent_back({"block_bbox": [HUGE, 0, 0, 5]}), 422),
        (sent_back({"block_bbox": [0, 0, 1e308, 5]}), 422),
        (sent_back({"block_bbox": [float("nan")] * 4}), 422),
        (sent_back({"block_bbox": [5, 5, 1, 1], "block_label": "paragraph_title"}), 0),
        (sent_back({"block_bbox": [0, 0, 2**31 - 1, 2**31 - 1]}, width=1), 0),
        (sent_back({}, width=HUGE), 422),
        (sent_back({}, height=-HUGE), 422),
        (sent_back({}, width=0, height=0), 0),
        (sent_back({}, page_count=True), 422),
        (sent_back({"group_id": True}), 422),
        (sent_back({"group_id": HUGE, "block_polygon_points": [[HUGE, 1e308]]}), 0),
        (sent_back({}, layout_det_res={"boxes": [float("inf"), float("nan"), HUGE]}), 0),
        (sent_back({"block_label": "table", "block_content": "<td colspan='²'>x</td>"}), 0),
        (sent_back({"block_label": "table", "block_content": f"<table><tr><td rowspan='{'9' * 5000}'>x"}), 0),
        (sent_back(*({"block_label": "paragraph_title", "block_bbox": [0, 0, 2**30, 2**n]} for n in range(30))), 0),
    ],
    ids=lambda value: str(value)[:12],
)
@pytest.mark.parametrize("formats", [None, ["docx"]], ids=str)
def test_odd_restructuring_requests(
    handlers: Handlers, body: dict[str, Any], status: int, formats: list[str] | None
) -> None:
    raw = json.dumps(body | {"outputFormats": formats}).encode()
    assert handlers.answer(handlers.restructuring, raw)["errorCode"] == status
