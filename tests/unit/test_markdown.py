import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hps.document import Block, ModelSettings, ParsedPage
from hps.markdown import Markdown, block_contents, render

BOX = (0, 0, 500, 50)
SETTINGS = ModelSettings()
IGNORED = SETTINGS.markdown_ignore_labels
PICTURE = "imgs/img_in_image_box_0_0_500_50.jpg"
RENDERED = [
    "doc_title", "paragraph_title", "text", "ocr", "vertical_text", "reference_content", "vision_footnote",
    "figure_title", "abstract", "reference", "content", "algorithm", "display_formula", "inline_formula", "formula",
    "table", "spotting",
]  # fmt: skip


def page(*blocks: Block, settings: ModelSettings = SETTINGS, width: int = 1000) -> ParsedPage:
    return ParsedPage(width, 1400, blocks, settings)


def text_of(label: str, content: str, *, pretty: bool = True, settings: ModelSettings = SETTINGS) -> str:
    return render(page(Block(label, BOX, content), settings=settings), pretty=pretty).text


@pytest.mark.parametrize(
    ("title", "rendered"),
    [
        ("0.5 Zero", "### 0.5 Zero"),
        ("1.0 X", "### 1. 0 X"),
        ("1.2、Setup", "### 1.2、 Setup"),
        ("  12   Months", "## 12 Months"),
        ("2024年报告", "## 2024 年报告"),
        ("(10)Ten", "## (10) Ten"),
        ("(01) One", "## (01) One"),
        ("（十二）节", "## （十二） 节"),
        ("贰、总则", "## 贰、 总则"),
        ("十. 题", "### 十. 题"),
        ("IV. Results", "### IV. Results"),
        ("VIII Results", "## VIII Results"),
        ("iv. results", "### iv. results"),
        ("XI. Eleven", "### XI. Eleven"),
        ("Introduction", "## Introduction"),
        ("Done...", "## Done"),
        ("1. Long title\nover lines", "### 1. Long title over lines"),
        ("1.\nIntro", "### 1. Intro"),
        ("2.1Hyphen-\nated title", "### 2.1Hyphenated title"),
        ("1　全角", "## 1 全角"),
        ("", "## "),
    ],
)
def test_title_numbers(title: str, rendered: str) -> None:
    assert text_of("paragraph_title", title) == rendered


@pytest.mark.parametrize(("level", "marks"), [(1, "##"), (4, "#####"), (0, "#"), (-1, "#")])
def test_a_known_level_goes_before_the_number(level: int, marks: str) -> None:
    block = Block("paragraph_title", BOX, "1.1.Foo.", title_level=level)
    assert render(page(block)).text == f"{marks} 1.1.Foo."


@pytest.mark.parametrize(
    ("label", "content", "pretty", "plain"),
    [
        ("figure_title", "Fig-\nure\n1", '<div style="text-align: center;">Figure 1</div>\n', "Fig-\nure\n1"),
        ("abstract", " Abstract We show", " ## Abstract\n We show", " ## Abstract\n We show"),
        ("abstract", "摘要 正文", "## 摘要\n 正文", "## 摘要\n 正文"),
        ("abstract", "Abstracts differ", "Abstracts differ", "Abstracts differ"),
        ("reference", "\nREFERENCES\n[1] a", "\n## REFERENCES\n[1] a", "\n## REFERENCES\n[1] a"),
        ("reference", "[1] a\nReferences", "[1] a\nReferences", "[1] a\nReferences"),
        ("content", "1 A\n2 B-\n3", "1 A  \n2 B    \n3", "1 A  \n2 B    \n3"),
        ("algorithm", "\n\n for\n  x \n", " for\n  x ", " for\n  x "),
        ("inline_formula", " $ x $\n", " $ x $\n", " $ x $\n"),
        ("text", "a\n\n\n\nb", "a\n\n\n\nb", "a\n\n\n\nb"),
    ],
)
def test_labels(label: str, content: str, pretty: str, plain: str) -> None:
    assert text_of(label, content) == pretty
    assert text_of(label, content, pretty=False) == plain


def test_cells_with_spans_stay_bare() -> None:
    rendered = text_of("table", '<table><tr><th>a</th><td colspan="2">b</td></tr></table>')
    assert "<th style='text-align: center; word-wrap: break-word;'>a</th>" in rendered
    assert '<td colspan="2">b</td>' in rendered


def test_charts_are_tables_where_they_are_read() -> None:
    settings = ModelSettings(use_chart_recognition=True)
    rendered = text_of("chart", "k | v\n1|2|3", settings=settings)
    assert rendered == text_of("chart", "k | v\n1|2|3", settings=settings, pretty=False)
    assert rendered.count("<th ") == 2
    assert rendered.count("<td ") == 3


def test_picture_width_is_a_share_of_the_page() -> None:
    block = Block("header_image", (10, 0, 300, 50), image_path=PICTURE)
    shown = replace(SETTINGS, markdown_ignore_labels=())
    assert 'width="28%"' in render(page(block, settings=shown)).text
    assert 'width="200%"' in render(page(block, settings=shown, width=145)).text
    assert 'width="100%"' in render(page(block, settings=shown, width=0)).text


def test_text_of_pictures_is_shown_if_it_was_asked_for() -> None:
    block = Block("image", BOX, "inside", image_path=PICTURE)
    asked = ModelSettings(use_ocr_for_image_block=True)
    assert render(page(block, settings=asked), pretty=False).text == f"![]({PICTURE})\n\ninside\n\n"
    assert render(page(block), pretty=False).text == f"![]({PICTURE})"


def test_seals() -> None:
    block = Block("seal", BOX, "two\nlines", image_path=PICTURE)
    read = ModelSettings(use_seal_recognition=True)
    alone = ModelSettings(use_seal_recognition=True, use_layout_detection=False)
    assert render(page(block), pretty=False).text == f"![]({PICTURE})"
    assert "two\nlines" in render(page(block, settings=read)).text
    assert render(page(block, settings=alone)).text == '<div style="text-align: center;">two lines</div>\n'
    assert render(page(block, settings=alone), pretty=False).text == "two\nlines"


def test_formula_numbers_join_the_formula_before_them() -> None:
    blocks = (Block("formula", BOX, "$$x$$"), Block("formula_number", BOX, "(1)"), Block("formula_number", BOX, "(2)"))
    assert render(page(*blocks), show_formula_number=True).text == r"$$x \tag*{(1)}$$"
    assert render(page(*blocks)).text == "$$x$$"
    inline = (Block("inline_formula", BOX, "$x$"), Block("formula_number", BOX, "(1)"))
    assert render(page(*inline), show_formula_number=True).text == "$x$"


def test_ignored_labels_leave_no_text_but_keep_their_picture() -> None:
    blocks = (Block("header_image", BOX, image_path=PICTURE), Block("header", BOX, "H"), Block("text", BOX, "t"))
    assert render(page(*blocks)) == Markdown("t", (PICTURE,))


def test_images_of_blocks_come_first_and_once() -> None:
    pixels = np.zeros((1, 1, 3), np.uint8)
    blocks = (
        Block("image", BOX, image_path="b"),
        Block("image", BOX, image_path="a"),
        Block("image", BOX, image_path="b"),
    )
    swallowed = replace(page(*blocks), pictures={"in a table": pixels, "a": pixels})
    assert render(swallowed).image_paths == ("b", "a", "in a table")


def test_an_empty_page_is_empty() -> None:
    assert render(page()) == Markdown("")


WORDS = st.lists(st.sampled_from(["alpha", "beta", "1.2", "（一）", "\n", "-", "$x$", "|", "end."]), min_size=1)
BLOCKS = st.lists(st.tuples(st.sampled_from(RENDERED), WORDS.map(" ".join)), max_size=8)


def letters(text: str) -> str:
    """What must survive any dress: letters and digits, in order."""
    return "".join(character for character in text if character.isalnum())


@given(BLOCKS, st.booleans())
def test_no_rendered_block_loses_its_text(items: list[tuple[str, str]], pretty: bool) -> None:
    rendered = letters(render(page(*(Block(label, BOX, content) for label, content in items)), pretty=pretty).text)
    for _, content in items:
        found = rendered.find(letters(content))
        assert found >= 0
        rendered = rendered[found + len(letters(content)) :]


@given(BLOCKS)
def test_block_contents_are_the_rendering_of_single_blocks(items: list[tuple[str, str]]) -> None:
    blocks = tuple(Block(label, BOX, content) for label, content in [*items, ("number", "3"), ("mystery", "m")])
    assert block_contents(page(*blocks)) == tuple(block.content for block in blocks)
    formatted = block_contents(page(*blocks, settings=ModelSettings(format_block_content=True)))
    assert formatted[:-2] == tuple(render(page(block)).text for block in blocks[:-2])
    assert formatted[-2:] == ("3", "m")


@pytest.mark.parametrize("title", ["1" + " " * 20_000 + "\nfoo\nbar", "1." * 10_000, "一" * 20_000, " " * 20_000 + "I"])
def test_no_title_takes_long(title: str) -> None:
    durations = []
    for _ in range(3):
        started = time.perf_counter()
        text_of("paragraph_title", title)
        durations.append(time.perf_counter() - started)
    assert min(durations) < 0.05
