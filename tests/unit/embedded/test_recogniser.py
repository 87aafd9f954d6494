"""The few tests that run the real networks."""

import cv2
import numpy as np
import pytest

from hps.embedded.layout import OnnxLayout, load_layout
from hps.embedded.models import Quality
from hps.embedded.recogniser import Recogniser, load_recogniser
from hps.embedded.text_lines import RecognitionCancelled
from hps.layout.page_inputs import Bounded, PageInputs, layout_input

FORM = Bounded(960)


@pytest.fixture(scope="module")
def recogniser() -> Recogniser:
    return load_recogniser(Quality.FAST)


@pytest.fixture(scope="module")
def layout() -> OnnxLayout:
    return load_layout(threads=1, inputs=PageInputs(FORM, FORM), max_side=960)


def blank(height: int, width: int) -> np.ndarray:
    return np.full((height, width, 3), 255, np.uint8)


def write(image: np.ndarray, text: str, x: int, y: int, scale: float = 1.0) -> None:
    cv2.putText(image, text, (x, y), cv2.FONT_HERSHEY_SIMPLEX, scale, (0, 0, 0), 2, cv2.LINE_AA)


def page() -> np.ndarray:
    image = blank(1000, 800)
    for row in range(6):
        write(image, "Every line of this page is the same", 60, 100 + 50 * row)
    return image


def test_lines_are_joined(recogniser: Recogniser) -> None:
    image = blank(110, 420)
    write(image, "Reading two lines", 4, 34)
    write(image, "makes one text", 4, 90)
    assert recogniser.recognise(image, "OCR:") == "Reading two lines makes one text"


def test_small_print_is_enlarged(recogniser: Recogniser) -> None:
    image = blank(60, 300)
    write(image, "small print 2026", 10, 35, 0.8)
    small = cv2.resize(image, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    assert recogniser.recognise(small, "OCR:") == "small print 2026"


def test_line_that_stands_on_end_is_read(recogniser: Recogniser) -> None:
    image = blank(60, 420)
    write(image, "Standing on end", 10, 40)
    assert recogniser.recognise(np.ascontiguousarray(np.rot90(image)), "OCR:") == "Standing on end"


def test_table_gives_html(recogniser: Recogniser) -> None:
    image = blank(240, 600)
    for y in (10, 80, 150, 220):
        cv2.line(image, (10, y), (590, y), (0, 0, 0), 2)
    for x in (10, 300, 590):
        cv2.line(image, (x, 10), (x, 220), (0, 0, 0), 2)
    for row, words in enumerate((("Name", "Amount"), ("Apples", "120"), ("Pears", "85"))):
        for column, word in enumerate(words):
            write(image, word, 40 + 290 * column, 58 + 70 * row)
    html = recogniser.recognise(image, "Table Recognition:")
    assert html.startswith("<table><tr><td>Name</td><td>Amount</td></tr>")
    assert html.endswith("<tr><td>Pears</td><td>85</td></tr></table>")


@pytest.mark.parametrize("prompt", ["OCR:", "Table Recognition:"])
def test_blank_picture_gives_nothing(recogniser: Recogniser, prompt: str) -> None:
    assert recogniser.recognise(blank(50, 200), prompt) == ""


def test_cancellation_stops_between_lines(recogniser: Recogniser) -> None:
    with pytest.raises(RecognitionCancelled):
        recogniser.recognise(page(), "OCR:", lambda: True)


def test_layout_finds_the_text_in_pixels_of_the_original(layout: OnnxLayout) -> None:
    original = cv2.resize(page(), (1600, 2000))
    (finish,) = layout.detect([layout_input(FORM, original)])
    found = finish()
    boxes = found.rows[:, 2:6]
    assert boxes[:, 0].min() == pytest.approx(120, abs=40) and boxes[:, 3].max() == pytest.approx(720, abs=60)


def test_blank_page_has_no_boxes_and_is_upright(layout: OnnxLayout) -> None:
    empty = layout_input(FORM, blank(800, 600))
    assert layout.detect([empty])[0]().rows.shape == (0, 7)
    assert layout.orientations([empty]) == [0]


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_orientation_says_how_to_turn_back(layout: OnnxLayout, turns: int) -> None:
    turned = np.ascontiguousarray(np.rot90(page(), -turns))
    assert layout.orientations([layout_input(FORM, turned)]) == [90 * turns]
