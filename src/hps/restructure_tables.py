"""Tables that go on over a page break become one table (SPEC E.5)."""

from collections.abc import Sequence
from dataclasses import replace

from hps import table_html
from hps.document import Block
from hps.table_html import Element

_MAX_WIDTH_DIFFERENCE = 0.1
_MAX_HEADER_ROWS = 5
_LABELS_AFTER_TABLE = frozenset({"footer", "vision_footnote", "number", "footnote", "footer_image", "seal"})
_LABELS_BEFORE_TABLE = frozenset({"header", "header_image", "number", "seal"})

_FULL_TO_HALF_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}


def with_merged_tables(pages: Sequence[Sequence[Block]]) -> list[list[Block]]:
    """The same blocks; a continued table moves into the first one of its chain.

    The block that it came from stays, empty, and its `global_group_id` is that of the first table; every block must
    have a `global_group_id`.
    """
    merged = [list(page) for page in pages]
    continued: list[tuple[tuple[int, int], tuple[int, int]]] = []
    # From the back: a middle page's table has taken in the following one before it moves itself.
    for number in range(len(merged) - 1, 0, -1):
        before, after = merged[number - 1], merged[number]
        last, first = _last_table(before), _first_table(after)
        if last is None or first is None or not _may_continue(before, last, after, first):
            continue
        content = _joined(before[last].content, after[first].content)
        if content is not None:
            before[last] = replace(before[last], content=content)
            after[first] = replace(after[first], content="")
            continued.append(((number - 1, last), (number, first)))
    for (page, last), (next_page, first) in reversed(continued):
        group = merged[page][last].global_group_id
        merged[next_page][first] = replace(merged[next_page][first], global_group_id=group)
    return merged


def _last_table(page: Sequence[Block]) -> int | None:
    return next((index for index in range(len(page) - 1, -1, -1) if page[index].label == "table"), None)


def _first_table(page: Sequence[Block]) -> int | None:
    return next((index for index, block in enumerate(page) if block.label == "table"), None)


def _may_continue(before: Sequence[Block], last: int, after: Sequence[Block], first: int) -> bool:
    """Whether position, width and surroundings allow that the tables are one."""
    table, continuation = before[last], after[first]
    widths = (table.box[2] - table.box[0], continuation.box[2] - continuation.box[0])
    if 0 in widths or abs(widths[0] - widths[1]) / min(widths) >= _MAX_WIDTH_DIFFERENCE:
        return False
    return (
        all(block.label in _LABELS_AFTER_TABLE for block in before[last + 1 :])
        and all(block.label in _LABELS_BEFORE_TABLE for block in after[:first])
        and bool(table.content and continuation.content)
    )


def _joined(html: str, continuation: str) -> str | None:
    """The first table with the rows of the second below, a repeated header left out; None if they do not fit.

    Contents without any row (a VLM may answer with prose) never fit: there would be nowhere to put their text.
    """
    tree = table_html.parsed(html)
    rows, more_rows = tree.rows(), table_html.parsed(continuation).rows()
    if not rows or not more_rows:
        return None
    header = _common_header_rows(rows, more_rows)
    if table_html.total_columns(rows) != table_html.total_columns(more_rows) and not (
        header < len(more_rows) and _is_alike(rows[-1], more_rows[header])
    ):
        return None
    body = rows[-1].parent
    table_html.move_rows(more_rows[header:], tree if body is None else body)
    return tree.inner_html()


def _is_alike(row: Element, other: Element) -> bool:
    cells, other_cells = row.cells(), other.cells()
    return len(cells) == len(other_cells) or _columns(cells) == _columns(other_cells)


def _columns(cells: Sequence[Element]) -> int:
    return sum(cell.span("colspan") for cell in cells)


def _common_header_rows(rows: Sequence[Element], more_rows: Sequence[Element]) -> int:
    """How many leading rows are the same in both tables."""
    count = 0
    for row, other in zip(rows[:_MAX_HEADER_ROWS], more_rows, strict=False):
        if _header_cells(row) != _header_cells(other):
            break
        count += 1
    return count


def _header_cells(row: Element) -> list[tuple[str, int]]:
    return [("".join(cell.text().translate(_FULL_TO_HALF_WIDTH).split()), cell.span("colspan")) for cell in row.cells()]
