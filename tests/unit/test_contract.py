"""The wire contract (SPEC A.2 to A.5): fields, ranges, what errors say, envelopes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hps import contract
from hps.contract import ERROR_ENVELOPE_LIMIT, LayoutParsingRequest, RestructurePagesRequest, parse_request
from hps.errors import ClientError, HpsError, InvalidInput, InvalidRequest, MalformedJson
from tests.unit.pipeline_parts import envelope


def parsed(**fields: Any) -> LayoutParsingRequest:
    return parse_request(LayoutParsingRequest, json.dumps({"file": "x"} | fields))


def refusal(**fields: Any) -> str:
    with pytest.raises(InvalidRequest) as caught:
        parsed(**fields)
    return caught.value.message


# --- fields ---


def test_null_means_as_configured_and_unknown_fields_are_ignored() -> None:
    request = parsed(useLayoutDetection=None, layoutThreshold=None, somethingNew={"a": 1})
    assert request.useLayoutDetection is None
    assert not hasattr(request, "somethingNew")


def test_defaults_that_are_no_null() -> None:
    request = parsed()
    assert (request.layoutShapeMode, request.prettifyMarkdown, request.showFormulaNumber) == ("auto", True, False)
    assert (request.returnMarkdownImages, request.restructurePages) == (True, False)
    assert (request.mergeTables, request.relevelTitles) == (True, True)
    assert request.visualize is None


@pytest.mark.parametrize(
    "field", ["layoutShapeMode", "prettifyMarkdown", "returnMarkdownImages", "restructurePages", "mergeTables"]
)
def test_a_field_without_a_configuration_behind_it_refuses_null(field: str) -> None:
    assert field in refusal(**{field: None})


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"file": 5}, "Input should be a valid string"),
        ({"fileType": 2}, "Input should be 0 or 1"),
        ({"fileType": "1"}, "Input should be 0 or 1"),
        ({"useDocUnwarping": "maybe"}, "valid boolean"),
        ({"layoutThreshold": 1.5}, "`layoutThreshold` must be between 0 and 1; got: 1.5"),
        ({"layoutThreshold": {"22": "x"}}, "`layoutThreshold` value for key '22' must be a number; got: str"),
        ({"layoutThreshold": {"22": True}}, "`layoutThreshold` value for key '22' must be a number; got: bool"),
        ({"layoutThreshold": {"22": -1}}, "`layoutThreshold` value for key '22' must be between 0 and 1; got: -1"),
        ({"layoutThreshold": {"text": 0.5}}, "`layoutThreshold` keys must be class ids; got: 'text'"),
        ({"layoutUnclipRatio": 0}, "`layoutUnclipRatio` must be > 0; got: 0.0"),
        ({"layoutUnclipRatio": [1, 0]}, "`layoutUnclipRatio` must be > 0; got: 0.0"),
        ({"layoutUnclipRatio": {"22": [1]}}, "`layoutUnclipRatio` value for key '22' must be two numbers"),
        ({"layoutUnclipRatio": {"22": ["a", 1]}}, "`layoutUnclipRatio` value for key '22' must be a number"),
        ({"layoutUnclipRatio": {"22": 0}}, "`layoutUnclipRatio` value for key '22' must be > 0; got: 0"),
        ({"layoutUnclipRatio": {"-1": 1}}, "`layoutUnclipRatio` keys must be class ids; got: '-1'"),
        ({"layoutMergeBboxesMode": "huge"}, "`layoutMergeBboxesMode` must be one of: large, small, union; got: huge"),
        ({"layoutMergeBboxesMode": {"3": "huge"}}, "dictionary value must be one of: large, small, union; got: huge"),
        ({"layoutMergeBboxesMode": {"a": "large"}}, "`layoutMergeBboxesMode` keys must be class ids; got: 'a'"),
        ({"layoutShapeMode": "round"}, "'rect', 'quad', 'poly' or 'auto'"),
        ({"promptLabel": "OCR"}, "`promptLabel` must be one of: ocr, formula, table, chart, seal, spotting; got: OCR"),
        ({"repetitionPenalty": 0}, "`repetitionPenalty` must be > 0; got: 0.0"),
        ({"temperature": -0.1}, "`temperature` must be ≥ 0; got: -0.1"),
        ({"topP": 0}, "`topP` must be > 0 and ≤ 1; got: 0.0"),
        ({"topP": 1.1}, "`topP` must be > 0 and ≤ 1; got: 1.1"),
        ({"temperature": float("nan")}, "temperature"),
        ({"minPixels": 0}, "Input should be greater than 0"),
        ({"maxNewTokens": 1.5}, "maxNewTokens"),
        ({"minPixels": 200, "maxPixels": 100}, "`minPixels` (200) cannot be greater than `maxPixels` (100)"),
        ({"vlmExtraArgs": [1]}, "Input should be an object"),
        ({"outputFormats": ["pdf"]}, "Unsupported `outputFormats` entry 'pdf'. Supported values: ['docx']"),
        ({"logId": 5}, "logId\n  Input should be a valid string [type=string_type]"),
        ({"markdownIgnoreLabels": "header"}, "markdownIgnoreLabels"),
    ],
    ids=str,
)
def test_what_is_out_of_range_is_named(fields: dict[str, Any], says: str) -> None:
    message = refusal(**fields)
    assert says in message
    assert "for InferRequest" in message.partition("\n")[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"layoutThreshold": 0},
        {"layoutThreshold": {"22": 1, " 3 ": 0.5}},
        {"layoutUnclipRatio": [1.1, 1.2]},
        {"layoutUnclipRatio": {"22": 1.5, "3": [1, 2]}},
        {"layoutMergeBboxesMode": {"3": "small"}},
        {"topP": 1, "temperature": 0, "repetitionPenalty": 0.1},
        {"minPixels": 100, "maxPixels": 100},
        {"outputFormats": ["docx"]},
        {"outputFormats": []},
        {"useLayoutDetection": 1},
    ],
    ids=str,
)
def test_what_is_in_range_is_taken(fields: dict[str, Any]) -> None:
    parsed(**fields)


def test_all_problems_are_listed_and_no_value_repeated() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_request(LayoutParsingRequest, json.dumps({"fileType": "confidential", "topP": 3}))
    lines = caught.value.message.split("\n")
    assert lines[0] == "3 validation errors for InferRequest"
    assert lines[1:3] == ["file", "  Field required [type=missing]"]
    assert "confidential" not in caught.value.message


def test_a_page_of_a_document_is_found_by_its_place() -> None:
    body = json.dumps({"pages": [{"prunedResult": {}}, {}]})
    with pytest.raises(InvalidRequest, match=r"for RestructurePagesRequest\npages\.1\.prunedResult\n  Field required"):
        parse_request(RestructurePagesRequest, body)


@pytest.mark.parametrize(
    ("body", "error", "says"),
    [
        (b"", InvalidRequest, "body: Field required"),
        (b" \n", InvalidRequest, "body: Field required"),
        (b"null", InvalidRequest, "body: Field required"),
        (b"[1]", InvalidRequest, "body: Input should be a valid dictionary"),
        (b'"text"', InvalidRequest, "body: Input should be a valid dictionary"),
        (b"not json", MalformedJson, "Invalid JSON"),
        (b'{"file": "x"', MalformedJson, "Invalid JSON"),
        (b'{"file": "\xff"}', MalformedJson, "Invalid JSON"),
        (b'{"file": "\\ud800"}', MalformedJson, "Invalid JSON"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, MalformedJson, "recursion"),
    ],
)
@pytest.mark.parametrize("model", [LayoutParsingRequest, RestructurePagesRequest])
def test_bodies_that_are_no_object(model: Any, body: bytes, error: type[HpsError], says: str) -> None:
    with pytest.raises(error, match=says) as caught:
        parse_request(model, body)
    assert caught.value.status == (400 if error is MalformedJson else 422)


# --- log id ---


@pytest.mark.parametrize(
    ("body", "log_id"),
    [
        (b'{"logId": "a"}', "a"),
        ('{"logId": "文"}'.encode(), "文"),
        (b'{"logId": "a\\ud800"}', "a?"),
        (b'{"logId": ""}', None),
        (b'{"logId": null}', None),
        (b'{"logId": 5}', None),
        (b'{"logId": ["a"]}', None),
        (b'["logId"]', None),
        (b'"logId"', None),
        (b"5", None),
        (b"null", None),
        (b"{}", None),
        (b"", None),
        (b"{", None),
        (b"\xff\xfe", None),
        (b"[" * 100_000, None),
        (b"9" * 5000, None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_the_log_id_of_a_body_that_failed(body: bytes, log_id: str | None) -> None:
    assert contract.log_id_of(body) == log_id


@given(st.binary(max_size=60))
def test_looking_for_a_log_id_never_raises(body: bytes) -> None:
    contract.log_id_of(body)


# --- envelopes ---


def test_envelopes_have_the_keys_in_their_order() -> None:
    success = contract.success("文", {"a": None, "b": "ü"})
    assert success == '{"logId":"文","result":{"a":null,"b":"ü"},"errorCode":0,"errorMsg":"Success"}'.encode()
    assert contract.failure("L", InvalidInput()) == (
        b'{"logId":"L","errorCode":422,"errorMsg":"Input file is invalid"}'
    )


def test_what_json_cannot_say_is_null() -> None:
    assert envelope(contract.success("L", {"a": [float("nan"), float("inf")]}))["result"] == {"a": [None, None]}


@given(st.text(max_size=3), st.text(max_size=3), st.integers(1, 40_000))
def test_an_error_always_stays_below_the_limit(log_id: str, message: str, times: int) -> None:
    written = contract.failure(log_id * times, ClientError(message * times))
    assert len(written) < ERROR_ENVELOPE_LIMIT
    assert envelope(written)["errorCode"] == 422


@pytest.mark.parametrize("character", ["a", "\x01", '"', "文", "\U0001f600"])
def test_no_character_makes_an_error_too_long(character: str) -> None:
    assert len(contract.failure(character * 10**5, ClientError(character * 10**5))) < ERROR_ENVELOPE_LIMIT


def test_thousands_of_problems_still_fit() -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_request(RestructurePagesRequest, json.dumps({"pages": [{}] * 5000}))
    assert caught.value.message.startswith("5000 validation errors for RestructurePagesRequest\npages.0.prunedResult")
    assert len(contract.failure("L", caught.value)) < ERROR_ENVELOPE_LIMIT


def test_absent_fields_are_dropped_at_the_top_only() -> None:
    assert contract.without_nulls({"a": None, "b": {"c": None}, "d": 0}) == {"b": {"c": None}, "d": 0}
