"""The embedded recogniser: a crop and a prompt in, text out. Asked like PaddleOCR-VL, but far simpler."""

from collections.abc import Callable
from dataclasses import dataclass

from hps.document import Image
from hps.embedded.models import Quality
from hps.embedded.paragraphs import block_text, rows
from hps.embedded.tables import TableModel, load_table_model, table_html
from hps.embedded.text_lines import LineRecogniser, load_line_recogniser

TABLE_PROMPT = "Table Recognition:"


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Recogniser:
    """May be used from several threads at once; each call computes in its own thread."""

    text: LineRecogniser
    table: TableModel

    def recognise(self, image: Image, prompt: str, is_cancelled: Callable[[], bool] = _never) -> str:
        """`Table Recognition:` gives an HTML table, any other prompt the text as one paragraph, a blank picture "".

        image: BGR uint8. Raises RecognitionCancelled soon after `is_cancelled()` turns true.
        """
        lines = self.text.lines(image, is_cancelled)
        if not lines:
            return ""
        if prompt.strip() != TABLE_PROMPT:
            return block_text(lines)
        structure = self.table.structure(image)
        if not len(structure.cells):
            return "\n".join(" ".join(line.text for line in row) for row in rows(lines))
        return table_html(structure, lines)


def load_recogniser(quality: Quality, threads: int = 1) -> Recogniser:
    """threads: of each single call. Raises ModelFileError when a wheel is missing."""
    return Recogniser(load_line_recogniser(quality, threads), load_table_model(threads))
