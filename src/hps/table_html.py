"""The HTML of tables as a tree: read, measured, and written again (SPEC E.5 moves rows between tables).

Takes any text. What is not understood stays text; the tags of tables come out in one spelling (lower case, attributes
quoted), other tags as they were written. Linear in the text.
"""

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_TAG = re.compile(r"(<[^<>]*>)")
_TAG_PARTS = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)(.*)>\Z", re.DOTALL)
_ATTRIBUTE = re.compile(r"""([^\s/=]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s"']\S*|))?""")
_TABLE_TAGS = frozenset({"html", "body", "table", "thead", "tbody", "tfoot", "tr", "td", "th"})
_VOID_TAGS = frozenset({"br", "col", "hr", "img", "input", "link", "meta", "wbr"})
_CELLS = ("td", "th")
# As browsers do; also keeps a forged span from making a table of millions of columns.
_MAX_SPAN = 1000
# Deeper elements close at once: a text of nothing but opening tags would make every walk quadratic.
_MAX_DEPTH = 40


@dataclass(slots=True, eq=False)
class Element:
    """`opening` is the tag as it is written; children are elements and pieces of HTML text without tags."""

    tag: str
    opening: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    parent: "Element | None" = None
    children: "list[Element | str]" = field(default_factory=list)
    is_void: bool = False

    def descendants(self, *tags: str) -> "Iterator[Element]":
        """All elements below this one with one of `tags`, in document order."""
        pending = self.children[::-1]
        while pending:
            node = pending.pop()
            if isinstance(node, Element):
                if node.tag in tags:
                    yield node
                pending.extend(reversed(node.children))

    def rows(self) -> "list[Element]":
        return list(self.descendants("tr"))

    def cells(self) -> "list[Element]":
        return list(self.descendants(*_CELLS))

    def span(self, name: str) -> int:
        """`colspan` or `rowspan`; what makes no sense counts as 1."""
        value = self.attributes.get(name)
        if value is None:
            return 1
        value = value.strip()
        return min(int(value), _MAX_SPAN) if value.isdecimal() and len(value) < 10 and int(value) > 0 else 1

    def text(self) -> str:
        """The text of all descendants, references such as `&lt;` resolved."""
        pieces = []
        pending = self.children[::-1]
        while pending:
            node = pending.pop()
            if isinstance(node, str):
                pieces.append(html.unescape(node))
            else:
                pending.extend(reversed(node.children))
        return "".join(pieces)

    def inner_html(self) -> str:
        written = []
        pending = self.children[::-1]
        while pending:
            node = pending.pop()
            if isinstance(node, str):
                written.append(node)
                continue
            written.append(node.opening)
            if not node.is_void:
                pending.append(f"</{node.tag}>")
                pending.extend(reversed(node.children))
        return "".join(written)


def parsed(text: str) -> Element:
    """The nameless root of the tree of `text`."""
    root = current = Element("")
    depth = 0
    open_tags: Counter[str] = Counter()
    for piece in _TAG.split(text):
        parts = _TAG_PARTS.match(piece) if piece.startswith("<") else None
        if parts is None:
            _append_text(current, piece)
            continue
        is_closing, tag, rest = bool(parts[1]), parts[2].lower(), parts[3]
        if not is_closing:
            element = _element(piece, tag, rest, current)
            current.children.append(element)
            if not element.is_void and not rest.endswith("/") and depth < _MAX_DEPTH:
                current = element
                depth += 1
                open_tags[tag] += 1
        elif open_tags[tag]:
            closed = ""
            while closed != tag and current.parent is not None:
                closed, current = current.tag, current.parent
                depth -= 1
                open_tags[closed] -= 1
    return root


def total_columns(rows: Sequence[Element]) -> int:
    """Width of the grid that the rows span, colspan and rowspan counted."""
    widest = 0
    free_from: dict[int, int] = {}  # column → first row in which no rowspan from above reaches it
    for row_number, row in enumerate(rows):
        column = 0
        for cell in row.cells():
            while free_from.get(column, 0) > row_number:
                column += 1
            colspan, below = cell.span("colspan"), row_number + cell.span("rowspan")
            for covered in range(column, column + colspan):
                free_from[covered] = max(below, free_from.get(covered, 0))
            column += colspan
            widest = max(widest, column)
            if widest > _MAX_SPAN:
                return widest
    return widest


def move_rows(rows: Sequence[Element], parent: Element) -> None:
    """Takes the rows out of their places and appends them to `parent`, in order."""
    moved = set(map(id, rows))
    for old_parent in {id(row.parent): row.parent for row in rows}.values():
        if old_parent is not None:
            old_parent.children = [child for child in old_parent.children if id(child) not in moved]
    for row in rows:
        row.parent = parent
    parent.children.extend(rows)


def _append_text(element: Element, text: str) -> None:
    if text.startswith(("<!", "<?")):
        element.children.append(Element("", text, parent=element, is_void=True))
    elif text:
        element.children.append(html.escape(html.unescape(text), quote=False))


def _element(written: str, tag: str, rest: str, parent: Element) -> Element:
    if tag not in _TABLE_TAGS:
        return Element(tag, written, parent=parent, is_void=tag in _VOID_TAGS)
    if not rest:
        return Element(tag, f"<{tag}>", parent=parent)
    attributes = {
        name.lower(): html.unescape(value[1:-1] if value[:1] in ("'", '"') else value)
        for name, value in _ATTRIBUTE.findall(rest)
    }
    spelled = "".join(f' {name}="{html.escape(value)}"' for name, value in attributes.items())
    return Element(tag, f"<{tag}{spelled}>", attributes, parent)
