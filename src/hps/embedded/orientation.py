"""Which way up a page lies."""

from dataclasses import dataclass

import cv2
import numpy as np

from hps.document import Image
from hps.embedded.boxes import Boxes, union
from hps.embedded.models import ORIENTATION
from hps.embedded.sessions import Session, imagenet_tensor

SHORT_SIDE = 256
CROP = 224
# The classifier says 0 with a score near 0.26 for a blank crop; real pages are far above this.
MIN_SCORE = 0.8


@dataclass(frozen=True, slots=True)
class OrientationModel:
    session: Session

    def angle(self, image: Image, lines: Boxes) -> int:
        """Counter-clockwise degrees that turn a BGR page upright, 0 when in doubt.

        Looks at the part where `lines` (boxes in its pixels) lie: the middle of a sparse page is blank.
        """
        if not len(lines):
            return 0
        x1, y1, x2, y2 = (int(side) for side in union(lines))
        text = image[y1 : y2 + 1, x1 : x2 + 1]
        probabilities = self.session.run(imagenet_tensor(_central(text)))[0][0]
        best = int(probabilities.argmax())
        return best * 90 if probabilities[best] > MIN_SCORE else 0


def _central(image: Image) -> Image:
    """RGB (224, 224, 3): short side to 256, then the middle."""
    height, width = image.shape[:2]
    scale = SHORT_SIDE / min(height, width)
    size = (max(CROP, round(width * scale)), max(CROP, round(height * scale)))
    resized = cv2.resize(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), size)
    top, left = (size[1] - CROP) // 2, (size[0] - CROP) // 2
    return np.asarray(resized[top : top + CROP, left : left + CROP], np.uint8)


def load_orientation_model(threads: int) -> OrientationModel:
    """Raises ModelFileError when the wheel is missing."""
    return OrientationModel(Session(ORIENTATION.path(), threads))
