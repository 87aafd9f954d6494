"""Decoding PicoDet trained on CDLA: picture → boxes of ten classes."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from hps.document import Image
from hps.embedded.boxes import Boxes, areas, intersections
from hps.embedded.sessions import Session, Tensor, imagenet_tensor

INPUT_WIDTH, INPUT_HEIGHT = 608, 800
STRIDES = (8, 16, 32, 64)
# CDLA's text, title, figure, figure_caption, table, table_caption, header, footer, reference, equation, in the words
# of the layout stage.
LABELS = (
    "text",
    "paragraph_title",
    "image",
    "figure_title",
    "table",
    "figure_title",
    "header",
    "footer",
    "reference_content",
    "display_formula",
)
MIN_SCORE = 0.4
SAME_CLASS_IOU = 0.5
ANY_CLASS_IOU = 0.5
ANY_CLASS_COVERAGE = 0.8
MIN_SIDE = 3.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """box: float32 (4,), pixels of the picture."""

    label: str
    score: float
    box: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PicoDet:
    session: Session

    def detect(self, image: Image) -> list[Candidate]:
        """Boxes of a BGR picture, best first, duplicates removed."""
        height, width = image.shape[:2]
        resized = cv2.resize(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), (INPUT_WIDTH, INPUT_HEIGHT))
        outputs = self.session.run(imagenet_tensor(np.asarray(resized, np.uint8)))
        scores, boxes = decoded(outputs)
        boxes = boxes * np.array([width / INPUT_WIDTH, height / INPUT_HEIGHT] * 2, np.float32)
        boxes = np.clip(boxes, 0, np.array([width, height] * 2, np.float32))
        return candidates(scores, boxes)


def decoded(outputs: list[Tensor]) -> tuple[Tensor, Boxes]:
    """Class scores (n, 10) and boxes (n, 4) in input pixels, from one score and one distance tensor a stride.

    A distance is the expectation of a distribution over whole strides, measured from the middle of the cell.
    """
    by_size = sorted(outputs, key=lambda tensor: -tensor.shape[1])
    scores = [tensor[0] for tensor in by_size if tensor.shape[-1] == len(LABELS)]
    distances = [tensor[0] for tensor in by_size if tensor.shape[-1] != len(LABELS)]
    boxes = []
    for stride, distribution in zip(STRIDES, distances, strict=True):
        logits = distribution.reshape(len(distribution), 4, -1)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        expectation = (weights * np.arange(logits.shape[-1])).sum(-1) / weights.sum(-1)
        row, column = np.divmod(np.arange(len(distribution)), -(-INPUT_WIDTH // stride))
        middle = np.stack([column + 0.5, row + 0.5], 1)
        boxes.append(np.concatenate([middle - expectation[:, :2], middle + expectation[:, 2:]], 1) * stride)
    return np.concatenate(scores), np.concatenate(boxes).astype(np.float32)


def candidates(scores: Tensor, boxes: Boxes) -> list[Candidate]:
    """Suppression within a class by IoU, then across classes also of boxes that a better one mostly covers."""
    cells, classes = np.nonzero(scores > MIN_SCORE)
    order = np.argsort(-scores[cells, classes], kind="stable")
    cells, classes = cells[order], classes[order]
    boxes, values = boxes[cells], scores[cells, classes]
    overlap = intersections(boxes, boxes)
    area = areas(boxes)
    iou = overlap / np.maximum(area[:, None] + area[None] - overlap, 1e-6)
    covered = overlap / np.maximum(np.minimum(area[:, None], area[None]), 1e-6)
    big_enough = ((boxes[:, 2:] - boxes[:, :2]) > MIN_SIDE).all(1)
    of_class: list[int] = []
    for index in np.flatnonzero(big_enough):
        same = [other for other in of_class if classes[other] == classes[index]]
        if not (iou[index, same] > SAME_CLASS_IOU).any():
            of_class.append(int(index))
    kept: list[int] = []
    for index in of_class:
        if not ((iou[index, kept] > ANY_CLASS_IOU) | (covered[index, kept] > ANY_CLASS_COVERAGE)).any():
            kept.append(index)
    return [Candidate(LABELS[classes[index]], float(values[index]), boxes[index]) for index in kept]
