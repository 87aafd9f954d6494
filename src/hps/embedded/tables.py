"""Table structure with SLANet-plus, and the recognised lines put into its cells: picture → plain HTML."""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from hps.document import Image
from hps.embedded.boxes import Boxes, as_boxes, coverage
from hps.embedded.models import TABLE
from hps.embedded.paragraphs import block_text
from hps.embedded.sessions import Session, Tensor, imagenet_tensor
from hps.embedded.text_lines import TextLine

SIDE = 488
EMPTY_CELL = "<td></td>"
CELL_STARTS = frozenset(["<td>", "<td", EMPTY_CELL])
START, END = "sos", "eos"
_SPAN = re.compile(r'(colspan|rowspan)="(\d{1,2})"')


@dataclass(frozen=True, slots=True)
class TableStructure:
    """tokens: HTML fragments in order. cells: the boxes of the cells, in the order of their tokens, picture pixels."""

    tokens: tuple[str, ...]
    cells: Boxes


@dataclass(frozen=True, slots=True)
class TableModel:
    session: Session
    vocabulary: tuple[str, ...]

    def structure(self, image: Image) -> TableStructure:
        """The grid of the one table in a BGR picture; no cells when the network sees none."""
        height, width = image.shape[:2]
        scale = SIDE / max(height, width)
        size = (max(1, int(width * scale)), max(1, int(height * scale)))
        tensor = np.zeros((1, 3, SIDE, SIDE), np.float32)
        tensor[:, :, : size[1], : size[0]] = imagenet_tensor(np.asarray(cv2.resize(image, size), np.uint8))
        corners, scores = self.session.run(tensor)
        tokens: list[str] = []
        cells: list[Tensor] = []
        for step, best in enumerate(scores[0].argmax(-1)):
            token = self.vocabulary[best]
            if token == END:
                break
            if token == START:
                continue
            tokens.append(token)
            if token in CELL_STARTS:
                points = corners[0, step].reshape(-1, 2) * (SIDE / scale)
                cells.append(np.concatenate([points.min(0), points.max(0)]))
        return TableStructure(tuple(tokens), as_boxes(cells))


def load_table_model(threads: int) -> TableModel:
    """Raises ModelFileError when the wheel is missing."""
    session = Session(TABLE.path(), threads)
    words = [word for word in session.dictionary() if word != "<td>"]
    if EMPTY_CELL not in words:
        words.append(EMPTY_CELL)
    return TableModel(session, (START, *words, END))


def table_html(structure: TableStructure, lines: Sequence[TextLine]) -> str:
    """`<table><tr><td>…`, spans kept, everything else of the network's markup dropped, text escaped."""
    texts = iter(_cell_texts(structure.cells, lines))
    table_rows: list[str] = []
    row = ""
    spans = ""
    for token in structure.tokens:
        if token in (EMPTY_CELL, "<td>"):
            row += f"<td>{next(texts)}</td>"
        elif token == "<td":
            spans = ""
        elif match := _SPAN.search(token):
            spans += f' {match[1]}="{match[2]}"' if int(match[2]) > 1 else ""
        elif token == ">":
            row += f"<td{spans}>{next(texts)}</td>"
        elif token == "</tr>" and row:
            table_rows.append(f"<tr>{row}</tr>")
            row = ""
    if row:
        table_rows.append(f"<tr>{row}</tr>")
    return f"<table>{''.join(table_rows)}</table>"


def _cell_texts(cells: Boxes, lines: Sequence[TextLine]) -> list[str]:
    owned: list[list[TextLine]] = [[] for _ in cells]
    for line, cell in zip(lines, owners(cells, lines), strict=True):
        owned[cell].append(line)
    return [html.escape(block_text(content)) for content in owned]


def owners(cells: Boxes, lines: Sequence[TextLine]) -> list[int]:
    """For each line the cell that covers most of it, else the nearest (a step up or down counts twice)."""
    if not lines:
        return []
    boxes = as_boxes([line.box for line in lines])
    covered = coverage(boxes, cells)
    offset = np.abs((boxes[:, None, :2] + boxes[:, None, 2:] - cells[None, :, :2] - cells[None, :, 2:]) / 2)
    distance = offset[..., 0] + 2 * offset[..., 1]
    chosen = np.where(covered.max(1) > 0, covered.argmax(1), distance.argmin(1))
    return [int(cell) for cell in chosen]
