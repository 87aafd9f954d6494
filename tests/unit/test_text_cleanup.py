import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hps.document import Spotting
from hps.text_cleanup import CleanText, TablePicture, clean, with_table_pictures, without_repetition

PAGE = (200, 100)
LABELS = ["text", "table", "spotting", "display_formula", "formula_number", "chart", "seal", "ocr"]
PLAIN = st.text(st.characters(blacklist_characters="\\$<", blacklist_categories=["Cs"]), max_size=300)


def cut(text: str) -> str:
    return without_repetition(text, min_chars=50)


def located(*values: int) -> str:
    return "".join(f"<|LOC_{value}|>" for value in values)


# ---- repetition ----


def test_a_phrase_that_repeats_to_the_end_goes() -> None:
    assert cut("Head: " + "abcdefgh" * 20) == "Head: "


def test_copies_that_do_not_fill_the_longest_phrase_stay() -> None:
    # 22 copies: five times four of them are the run, two are left before it.
    assert cut("Total:" + " please pay" * 22) == "Total: please pay please pay"


def test_nothing_but_the_phrase_leaves_nothing() -> None:
    assert cut("abcdefghij" * 15) == ""


def test_a_phrase_of_fewer_than_eight_characters_counts_in_multiples() -> None:
    assert cut("x" * 101) == "x"


def test_four_repeats_are_no_loop() -> None:
    text = "".join(random.Random(1).choices("abcdefghijklmnop", k=40)) * 4
    assert cut(text) == text


def test_a_phrase_over_several_lines_is_left_alone() -> None:
    text = "first\n" + "please pay " * 30
    assert cut(text) == text


def test_ten_copies_are_one() -> None:
    assert cut("ab" * 25) == "ab"
    assert cut(" " + "abcde" * 10 + " ") == "abcde"


def test_nine_copies_stay() -> None:
    text = "abcdef" * 9
    assert cut(text) == text


def test_lines_are_compared_without_their_margins_and_blank_lines() -> None:
    assert cut("\n\n".join(["  same line", "same line  "] * 6)) == "same line"


def test_line_repetition_needs_its_share() -> None:
    text = "\n".join(["the same line"] * 11 + ["a", "b", "c"])
    assert cut(text) == text


def test_tables_are_searched_from_5000_characters_on() -> None:
    raw = "<fcel>a<fcel>b<nl>" * 20
    assert clean("table", raw, PAGE).content.count("<tr>") == 20
    assert clean("table", "<fcel>begin<nl>" + "<fcel>loop<nl>" * 500, PAGE).content == (
        "<table><tr><td>begin</td></tr></table>"
    )


@given(st.text("ab \n", max_size=400))
def test_cutting_never_invents_text(text: str) -> None:
    assert cut(text) in text or cut(text) in text.strip()


# ---- maths ----


@pytest.mark.parametrize(
    ("raw", "content"),
    [
        (r"price $5 with \(x\)", "price 5 with  $ x $"),
        (r"\[E\]", " $$ E $$ "),
        (r"\[\[x\]\] and \(y\)", " $$ x $$  and  $ y $"),
        (r"\(a \[b\]", r" $ a  $$ b $$ "),
        (r"a \) b \( c", "a  $ b  $  c"),
        (r"\(a\]", r"\(a\]"),
        ("costs $5 and $6", "costs $5 and $6"),
    ],
)
def test_delimiters_become_dollars(raw: str, content: str) -> None:
    assert clean("text", raw, PAGE).content == content


def test_formula_numbers_have_no_dollars() -> None:
    assert clean("formula_number", r"\[(3)\]", PAGE).content == "  (3)  "
    assert clean("formula_number", "$(3)$", PAGE).content == "$(3)$"


# ---- tables ----


def test_what_is_no_otsl_passes() -> None:
    assert clean("table", "no table here", PAGE).content == "no table here"


def test_otsl_is_text_elsewhere() -> None:
    assert clean("text", "<fcel>a<nl>", PAGE).content == "<fcel>a<nl>"


def test_tokens_become_pictures_and_unknown_ones_stay() -> None:
    pictures = {"[F2]": TablePicture("imgs/a.jpg"), "[F23]": TablePicture("imgs/b.jpg", "its text")}
    content = with_table_pictures("<td>[F2]</td><td>[F23]</td><td>[F4]</td><td>[F]</td>", pictures)
    assert content == (
        '<td><img src="imgs/a.jpg" alt="Image"" /></td>'
        '<td><img src="imgs/b.jpg" alt="Image"" />\n\nits text\n\n</td><td>[F4]</td><td>[F]</td>'
    )


# ---- spotting ----


def test_tagged_lines_pair_texts_and_places() -> None:
    place = located(0, 0, 500, 0, 500, 1000, 0, 1000)
    raw = (
        f"<|TEXT_START|> first <|TEXT_END|><|LOC_BEGIN|>{place}<|LOC_END|>"
        f"<|TEXT_START|>incomplete<|TEXT_END|><|LOC_BEGIN|>{located(1, 2)}<|LOC_END|>"
        f"<|TEXT_START|>second<|TEXT_END|><|LOC_BEGIN|>{place}{located(9)}<|LOC_END|>"
    )
    polygon = ((0.0, 0.0), (100.0, 0.0), (100.0, 100.0), (0.0, 100.0))
    assert clean("spotting", raw, PAGE) == CleanText(
        "first\n\nsecond", Spotting((polygon, polygon), ("first", "second"))
    )


def test_untagged_lines_take_the_text_before_their_place() -> None:
    raw = f"one {located(*range(8))}\ntwo{located(*range(8))}{located(1, 2)}"
    cleaned = clean("spotting", raw, (1000, 1000))
    assert cleaned.content == "one\n\ntwo"
    assert cleaned.spotting is not None
    assert cleaned.spotting.rec_polys[1] == ((0.0, 1.0), (2.0, 3.0), (4.0, 5.0), (6.0, 7.0))


def test_only_spotting_has_places() -> None:
    assert clean("text", located(*range(8)), PAGE).spotting is None
    assert clean("spotting", None, PAGE) == CleanText("", Spotting())


# ---- all of it ----


@given(st.sampled_from(["text", "ocr", "chart"]), PLAIN)
def test_a_clean_text_stays_clean(label: str, raw: str) -> None:
    once = clean(label, raw, PAGE).content
    if len(once) == len(raw):
        assert clean(label, once, PAGE).content == once == raw


@given(st.sampled_from(LABELS), st.lists(st.sampled_from([r"\(", r"\)", r"\[", r"\]", "$", "x"]), max_size=30))
def test_maths_is_rewritten_once(label: str, pieces: list[str]) -> None:
    once = clean(label, "".join(pieces), PAGE).content
    assert clean(label, once, PAGE).content == once


def _soups() -> list[str]:
    length = 20_000
    chance = random.Random(5)
    fibonacci = ["a", "ab"]
    while len(fibonacci[-1]) < length:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    return [
        "a" * length,
        "a" * (length - 1) + "b",
        ("x" + "a" * 999) * (length // 1000),
        ("a" * 3998 + "b") * 5 + "a",
        "".join(chance.choices("ab", k=length)),
        "".join(chance.choices("我们", k=length)),
        fibonacci[-1][:length],
        "\n".join("ab" * (length // 4)),
        r"\(\[" * (length // 4) + r"\)",
        "<" * length,
        "<fcel>" * (length // 6),
        "<xcel>" * (length // 6),
        ("<fcel>" + "<xcel>" * 55 + "<nl>") * 57,
        "<fcel>" * 1600 + "<nl>" + "<ecel><nl>" * 1000,
        "<|TEXT_START|>" * (length // 14),
        "<|LOC_BEGIN|>" * (length // 14),
        "<|LOC_1|>" * (length // 9),
        "[F2]" * (length // 4),
    ]


@pytest.mark.parametrize("label", ["text", "table", "spotting"])
def test_any_20000_characters_are_cleaned_at_once(label: str) -> None:
    for soup in _soups():
        # The fastest of three: other work on the machine must not count.
        durations = []
        for _ in range(3):
            started = time.perf_counter()
            clean(label, soup, PAGE)
            durations.append(time.perf_counter() - started)
        assert min(durations) < 0.05, soup[:20]
