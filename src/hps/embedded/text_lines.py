"""Detection and recognition of the text lines of a picture."""

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np

from hps.document import Image
from hps.embedded.line_detection import LineDetector, Quad
from hps.embedded.line_recognition import LineReader, load_alphabet
from hps.embedded.models import TEXT, Quality
from hps.embedded.sessions import Session

Box = tuple[float, float, float, float]

MAX_SIDE = 1600
# Crops are exact boxes: without a border around them the detector misses lines that touch the edge.
BORDER = 16
MIN_SCORE = 0.5
# Lines lower than this are looked for once more in the enlarged picture.
SMALL_LINE = 17
ENLARGEMENT = 2.0
VERTICAL_ASPECT = 1.5
MIN_VERTICAL_HEIGHT = 40


class RecognitionCancelled(Exception):
    """Nobody waits for the text any more."""


@dataclass(frozen=True, slots=True)
class TextLine:
    """box: x1, y1, x2, y2 in pixels of the picture."""

    box: Box
    text: str
    score: float = 1.0

    @property
    def height(self) -> float:
        return self.box[3] - self.box[1]

    @property
    def is_vertical(self) -> bool:
        return self.height > VERTICAL_ASPECT * (self.box[2] - self.box[0]) and self.height > MIN_VERTICAL_HEIGHT


@dataclass(frozen=True, slots=True)
class LineRecogniser:
    """May be used from several threads at once."""

    detector: LineDetector
    reader: LineReader

    def lines(self, image: Image, is_cancelled: Callable[[], bool]) -> list[TextLine]:
        """What can be read in a BGR picture, unordered. Raises RecognitionCancelled between two lines."""
        height, width = image.shape[:2]
        framed = np.full((height + 2 * BORDER, width + 2 * BORDER, 3), 255, np.uint8)
        framed[BORDER : BORDER + height, BORDER : BORDER + width] = image
        found = []
        for quad in self._quads(framed):
            if is_cancelled():
                raise RecognitionCancelled
            text, score = self._read(upright(framed, quad))
            if score > MIN_SCORE and text.strip():
                x1, y1 = quad.min(0) - BORDER
                x2, y2 = quad.max(0) - BORDER
                found.append(TextLine((float(x1), float(y1), float(x2), float(y2)), text.strip(), score))
        return found

    def _quads(self, framed: Image) -> list[Quad]:
        quads = self.detector.lines(framed, MAX_SIDE)
        if quads and np.median([_short_side(quad) for quad in quads]) >= SMALL_LINE:
            return quads
        if max(framed.shape[:2]) * ENLARGEMENT > MAX_SIDE:
            return quads
        enlarged = self.detector.lines(framed, MAX_SIDE, ENLARGEMENT)
        return enlarged if len(enlarged) >= len(quads) else quads

    def _read(self, line: Image) -> tuple[str, float]:
        height, width = line.shape[:2]
        if height <= VERTICAL_ASPECT * width or height <= MIN_VERTICAL_HEIGHT:
            return self.reader.read(line)
        # A column of characters, a margin stamp or a turned table head: only reading tells which way is up.
        turned = [self.reader.read(np.ascontiguousarray(np.rot90(line, turns))) for turns in (1, 3)]
        return max(turned, key=lambda result: result[1])


def upright(image: Image, quad: Quad) -> Image:
    """The quadrilateral as a picture of its own."""
    width = max(1, int(max(np.linalg.norm(quad[0] - quad[1]), np.linalg.norm(quad[2] - quad[3]))))
    height = max(1, int(max(np.linalg.norm(quad[0] - quad[3]), np.linalg.norm(quad[1] - quad[2]))))
    target = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    transform = cv2.getPerspectiveTransform(quad, target)
    flat = cv2.warpPerspective(
        image, transform, (width, height), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE
    )
    return np.asarray(flat, np.uint8)


def _short_side(quad: Quad) -> float:
    return float(min(np.linalg.norm(quad[0] - quad[3]), np.linalg.norm(quad[0] - quad[1])))


def load_line_detector(quality: Quality, threads: int) -> LineDetector:
    return LineDetector(Session(TEXT[quality].detection.path(), threads))


def load_line_recogniser(quality: Quality, threads: int) -> LineRecogniser:
    """Raises ModelFileError when a wheel is missing."""
    files = TEXT[quality]
    session = Session(files.recognition.path(), threads)
    dictionary = files.dictionary.path() if files.dictionary else None
    return LineRecogniser(load_line_detector(quality, threads), LineReader(session, load_alphabet(session, dictionary)))
