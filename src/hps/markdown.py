"""A parsed page as Markdown (SPEC E.2), and each block of it for `formatBlockContent` (SPEC E.3).

Pure; the pictures are named, not encoded.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from hps.document import Block, ModelSettings, ParsedPage

_FORMULAS_WITH_NUMBER = frozenset({"display_formula", "formula"})

_CHINESE_NUMERALS = "一二三四五六七八九十百千万亿零壹贰叁肆伍陆柒捌玖拾"
_TITLE_NUMBER = re.compile(
    rf"""\s*(
        [1-9][0-9]*(?:\.[1-9][0-9]*)*[.、]?
        | [(（](?:[1-9][0-9]*|[{_CHINESE_NUMERALS}]+)[)）]
        | [{_CHINESE_NUMERALS}]+[、.]?
        | (?:I{{1,3}}|IV|VI{{0,3}}|IX|X)[.\s]
    )""",
    re.VERBOSE,
)

_TABLE_STYLES = (
    ("<table>", "<table border=1 style='margin: auto; word-wrap: break-word;'>"),
    ("<th>", "<th style='text-align: center; word-wrap: break-word;'>"),
    ("<td>", "<td style='text-align: center; word-wrap: break-word;'>"),
)
_DOCUMENT_TAGS = ("<html>", "</html>", "<body>", "</body>")


@dataclass(frozen=True, slots=True)
class Markdown:
    """image_paths: every picture that belongs to the page, also those that `text` does not mention; no duplicates."""

    text: str
    image_paths: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Style:
    pretty: bool
    settings: ModelSettings
    page_width: int


_Renderer = Callable[[Block, _Style], str]


def render(page: ParsedPage, *, pretty: bool = True, show_formula_number: bool = False) -> Markdown:
    """The page's blocks in order, one blank line between them.

    `pretty` dresses titles of figures, pictures and tables in HTML. With `show_formula_number` a formula takes the
    number that directly follows it. Blocks whose label is to be ignored, or has no rendering, leave no text.
    """
    style = _Style(pretty, page.settings, page.width)
    ignored = frozenset(page.settings.markdown_ignore_labels)
    pieces: list[str] = []
    for index, block in enumerate(page.blocks):
        renderer = None if block.label in ignored else _RENDERERS.get(block.label)
        if renderer is None:
            continue
        number = _formula_number(page.blocks, index) if show_formula_number else None
        text = renderer(block, style) if number is None else _numbered_formula(block.content, number)
        # Empty blocks leave a blank paragraph behind, but never before the first text (SPEC H, Q14).
        if text or pieces:
            pieces.append(text)
    paths = [block.image_path for block in page.blocks if block.image_path is not None]
    return Markdown("\n\n".join(pieces), tuple(dict.fromkeys([*paths, *page.pictures])))


def block_contents(page: ParsedPage) -> tuple[str, ...]:
    """Each block's content as `block_content` shows it: the pretty rendering if the page's settings ask for it."""
    if not page.settings.format_block_content:
        return tuple(block.content for block in page.blocks)
    style = _Style(True, page.settings, page.width)
    ignored = frozenset(page.settings.markdown_ignore_labels)
    return tuple(
        block.content
        if block.label in ignored or block.label not in _RENDERERS
        else _RENDERERS[block.label](block, style)
        for block in page.blocks
    )


def _formula_number(blocks: Sequence[Block], index: int) -> str | None:
    """The number of the formula at `index`: the block right behind it, if that is one."""
    if blocks[index].label not in _FORMULAS_WITH_NUMBER or index + 1 == len(blocks):
        return None
    following = blocks[index + 1]
    return following.content if following.label == "formula_number" else None


def _numbered_formula(formula: str, number: str) -> str:
    return rf"$${formula.replace('$$', '')} \tag*{{{number}}}$$"


def _joined_lines(text: str) -> str:
    return text.replace("-\n", "").replace("\n", " ")


def _centred(text: str) -> str:
    return f'<div style="text-align: center;">{text}</div>\n'


def _as_is(block: Block, style: _Style) -> str:
    return block.content


def _doc_title(block: Block, style: _Style) -> str:
    return _joined_lines(f"# {block.content}")


def _paragraph_title(block: Block, style: _Style) -> str:
    title, level = block.content, block.title_level
    if level is None:
        title = _spaced_number(title).rstrip(".")
        level = 1 + title.count(".")
    return _joined_lines(f"#{'#' * level} {title}")


def _spaced_number(title: str) -> str:
    """The title with exactly one space behind its number; untouched without a number or with several lines."""
    number = _TITLE_NUMBER.match(title)
    if number is None:
        return title
    rest = title[number.end() :].lstrip().removesuffix("\n")
    return title if "\n" in rest else f"{number[1].strip()} {rest}"


def _paragraphs(block: Block, style: _Style) -> str:
    return block.content.replace("\n\n", "\n").replace("\n", "\n\n")


def _caption(block: Block, style: _Style) -> str:
    return _centred(_joined_lines(block.content)) if style.pretty else block.content


def _with_heading(block: Block, style: _Style, *, separator: str, headings: tuple[str, ...], end: str) -> str:
    """Makes a heading of the first piece of the text that is not blank if it is one of `headings`."""
    pieces = block.content.split(separator)
    for index, piece in enumerate(pieces):
        if piece.strip():
            if piece.lower() in headings:
                pieces[index] = f"## {piece}{end}"
            break
    return separator.join(pieces)


def _contents_list(block: Block, style: _Style) -> str:
    # In this order: a line that ends in a hyphen gets its two spaces twice, as clients know it.
    return block.content.replace("-\n", "  \n").replace("\n", "  \n")


def _algorithm(block: Block, style: _Style) -> str:
    return block.content.strip("\n")


def _table(block: Block, style: _Style) -> str:
    content = block.content
    if style.pretty:
        for bare, styled in _TABLE_STYLES:
            content = content.replace(bare, styled)
        return f"\n{content}"
    for tag in _DOCUMENT_TAGS:
        content = content.replace(tag, "")
    return f"\n\n{content}"


def _picture(block: Block, style: _Style) -> str:
    return _picture_with_text(block, style, shows_text=style.settings.use_ocr_for_image_block)


def _picture_with_text(block: Block, style: _Style, *, shows_text: bool) -> str:
    image = ""
    if block.image_path is not None:
        path = _joined_lines(block.image_path)
        if style.pretty:
            width = block.box[2] - block.box[0]
            # In this order of operations: 290 of 1000 pixels are 28 %, as clients know it.
            share = int(width / style.page_width * 100) if style.page_width else 100
            image = f'<img src="{path}" alt="Image" width="{share}%" />'
        else:
            image = f"![]({path})"
        if shows_text:
            image = f"{image}\n\n{block.content}\n\n"
    return _centred(image) if style.pretty else image


def _chart(block: Block, style: _Style) -> str:
    if not style.settings.use_chart_recognition:
        return _picture(block, style)
    header, *rows = (line.split("|") for line in block.content.split("\n"))
    lines = ["<table border=1 style='margin: auto; width: max-content;'>"]
    lines.append(f"  <thead><tr>{_chart_cells('th', header)}</tr></thead>")
    lines.append("  <tbody>")
    lines.extend(f"    <tr>{_chart_cells('td', row)}</tr>" for row in rows)
    lines += ["  </tbody>", "</table>"]
    return "\n".join(lines)


def _chart_cells(tag: str, cells: list[str]) -> str:
    return "".join(f"<{tag} style='text-align: center;'>{cell.strip()}</{tag}>" for cell in cells)


def _seal(block: Block, style: _Style) -> str:
    if not style.settings.use_layout_detection:
        return _caption(block, style)
    return _picture_with_text(block, style, shows_text=style.settings.use_seal_recognition)


_RENDERERS: Mapping[str, _Renderer] = {
    "doc_title": _doc_title,
    "paragraph_title": _paragraph_title,
    "figure_title": _caption,
    "text": _paragraphs,
    "ocr": _paragraphs,
    "vertical_text": _paragraphs,
    "reference_content": _paragraphs,
    "vision_footnote": _paragraphs,
    "abstract": partial(_with_heading, separator=" ", headings=("abstract", "摘要"), end="\n"),
    "reference": partial(_with_heading, separator="\n", headings=("references", "参考文献"), end=""),
    "content": _contents_list,
    "algorithm": _algorithm,
    "display_formula": _as_is,
    "inline_formula": _as_is,
    "formula": _as_is,
    "table": _table,
    "chart": _chart,
    "seal": _seal,
    "image": _picture,
    "header_image": _picture,
    "footer_image": _picture,
    "spotting": _as_is,
    "number": _as_is,
    "footnote": _as_is,
    "header": _as_is,
    "footer": _as_is,
    "aside_text": _as_is,
}
