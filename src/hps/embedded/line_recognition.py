"""Reading one upright text line with the PP-OCR recognition network (CTC, greedy)."""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from hps.document import Image
from hps.embedded.sessions import Session, Tensor

HEIGHT = 48
MIN_TEXT_WIDTH = 16
MIN_WIDTH = 64
WIDTH_STEP = 32
# Above this the line is squeezed: a single "line" of this length is a rule or noise, and memory must stay bounded.
MAX_WIDTH = 6400
BLANK = 0


@dataclass(frozen=True, slots=True)
class LineReader:
    """`alphabet[i]` is the character of class i + 1; the one class beyond it is the space."""

    session: Session
    alphabet: tuple[str, ...]

    def read(self, line: Image) -> tuple[str, float]:
        """Text and mean confidence (0 to 1) of a BGR line image; ("", 0.0) when there is nothing to read."""
        return decoded(self.session.run(line_tensor(line))[0][0], self.alphabet)


def load_alphabet(session: Session, dictionary: Path | None) -> tuple[str, ...]:
    """From the dictionary file, one character a line, or from the model itself."""
    if dictionary is None:
        return tuple(session.dictionary())
    return tuple(dictionary.read_text(encoding="utf-8").rstrip("\n").split("\n"))


def line_tensor(line: Image) -> Tensor:
    """(1, 3, 48, w): height 48, aspect kept, -1 to 1, padded on the right with zeros to a multiple of 32."""
    height, width = line.shape[:2]
    text_width = min(MAX_WIDTH, max(MIN_TEXT_WIDTH, int(HEIGHT * width / height)))
    resized = cv2.resize(line, (text_width, HEIGHT)).astype(np.float32) / 127.5 - 1
    padded_width = max(MIN_WIDTH, -(-text_width // WIDTH_STEP) * WIDTH_STEP)
    tensor = np.zeros((1, 3, HEIGHT, padded_width), np.float32)
    tensor[0, :, :, :text_width] = resized.transpose(2, 0, 1)
    return tensor


def decoded(probabilities: Tensor, alphabet: tuple[str, ...]) -> tuple[str, float]:
    """Greedy CTC of (steps, classes): repeats collapse, blanks vanish; the score is the mean over what remains."""
    classes = probabilities.argmax(1)
    is_new = np.concatenate([[True], classes[1:] != classes[:-1]])
    steps = np.flatnonzero(is_new & (classes != BLANK))
    if not len(steps):
        return "", 0.0
    text = "".join(alphabet[c - 1] if c <= len(alphabet) else " " for c in classes[steps])
    return text, float(probabilities[steps, classes[steps]].mean())
