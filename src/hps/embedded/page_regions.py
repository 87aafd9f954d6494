"""What PicoDet says of a page, corrected by the text lines that were found on it (pure).

PicoDet cuts first and last lines, misses whole paragraphs, calls a page of small print a figure, and knows neither a
document title nor a reading order.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hps.embedded.boxes import Boxes, areas, as_boxes, coverage, union
from hps.embedded.picodet import Candidate
from hps.embedded.reading_order import reading_order

TEXT_LABELS = frozenset(
    ["text", "paragraph_title", "doc_title", "figure_title", "header", "footer", "reference_content", "display_formula"]
)
TITLE_LABELS = frozenset(["paragraph_title", "header"])
# A figure with so many lines that fill such a share of it is text: a page of small print, the totals of an invoice.
TEXT_FILLS = ((8, 0.12), (4, 0.16))
MIN_INSIDE = 0.6
MIN_OWNED = 0.4
MAX_LINE_WIDTH = 1.3
MAX_LINE_GAP = 0.9
MIN_SHARED_WIDTH = 0.3
LINE_HEIGHT_RATIO = 1.7
RESCUED_SCORE = 0.6
MIN_LINES_TO_CUT = 4
MIN_INTO_NEIGHBOUR = 0.1
MIN_MERGED_OVERLAP = 0.5
TITLE_HEIGHT_RATIO = 1.25
HEADER_DEPTH = 0.15
MAX_GUTTER_REACH = 0.015
STAMP_ASPECT = 5.0
STAMP_MARGIN = 0.1
MIN_REGIONS_BESIDE_STAMP = 4
# Share of the page's long side by which boxes are widened, so that ascenders and accents are inside.
MARGIN = 0.0015


@dataclass(frozen=True, slots=True)
class PageRegion:
    """box: float32 (4,), pixels of the picture; line_height: median of its lines, 0 without any."""

    label: str
    score: float
    box: NDArray[np.float32]
    line_height: float = 0.0


def page_regions(found: list[Candidate], lines: Boxes, width: int, height: int) -> list[PageRegion]:
    """Regions in reading order. Every line lies in a region, unless it is part of a picture."""
    candidates = [one for one in found if not _is_text_page(one, lines)]
    owner = _owners(candidates, lines)
    boxes = as_boxes([one.box for one in candidates])
    regions = [
        _grown(one, lines[owner == index], lines[owner != index], np.delete(boxes, index, axis=0))
        for index, one in enumerate(candidates)
    ]
    regions += [_rescued(lines, group) for group in clustered(lines, np.flatnonzero(owner < 0))]
    regions = [_plausible(region, height) for region in _with_doc_title(merged(regions), height)]
    regions = _with_aside(regions, width)
    order = reading_order(_narrowed(as_boxes([region.box for region in regions]), width))
    return [_with_margin(regions[index], width, height) for index in order]


def _is_text_page(candidate: Candidate, lines: Boxes) -> bool:
    if candidate.label != "image" or not len(lines):
        return False
    box = as_boxes(candidate.box)
    inside = lines[coverage(lines, box)[:, 0] > MIN_INSIDE]
    fill = float(areas(inside).sum() / areas(box)[0])
    return any(len(inside) >= lines_needed and fill > share for lines_needed, share in TEXT_FILLS)


def _owners(candidates: list[Candidate], lines: Boxes) -> NDArray[np.intp]:
    """For each line the candidate that covers most of it, -1 when none covers enough."""
    if not candidates or not len(lines):
        return np.full(len(lines), -1, np.intp)
    covered = coverage(lines, as_boxes([one.box for one in candidates]))
    return np.where(covered.max(1) > MIN_OWNED, covered.argmax(1), -1)


def _grown(candidate: Candidate, lines: Boxes, other_lines: Boxes, others: Boxes) -> PageRegion:
    """A picture keeps its box; anything else reaches to the ends of its lines, but not into its neighbours."""
    if candidate.label == "image" or not len(lines):
        return PageRegion(candidate.label, candidate.score, candidate.box)
    width = candidate.box[2] - candidate.box[0]
    # A line much wider than the box is a title whose ends PicoDet has cut, or was found across two columns.
    own = lines[(lines[:, 2] - lines[:, 0] < MAX_LINE_WIDTH * width) | ~_reaches_into(lines, others)]
    # A box that cuts into a line of its neighbour would have half letters read: then its own lines alone count.
    intruded = len(own) and bool((coverage(other_lines, as_boxes(candidate.box)) > MIN_INTO_NEIGHBOUR).any())
    box = union(own) if intruded else union(np.concatenate([as_boxes(candidate.box), own]))
    return PageRegion(candidate.label, candidate.score, _beside(box, candidate.box, others), _median_height(lines))


def _beside(box: NDArray[np.float32], core: NDArray[np.float32], others: Boxes) -> NDArray[np.float32]:
    """`box` cut at regions beside its `core`: a line found across a gutter must not carry it into the next column."""
    beside = others[(others[:, 1] < box[3]) & (others[:, 3] > box[1])]
    right, left = beside[beside[:, 0] >= core[2], 0], beside[beside[:, 2] <= core[0], 2]
    cut = box.copy()
    cut[2] = min([box[2], *right])
    cut[0] = max([box[0], *left])
    return cut


def _reaches_into(lines: Boxes, others: Boxes) -> NDArray[np.bool_]:
    """For each line, whether a part of it lies in another region."""
    if not len(others):
        return np.zeros(len(lines), np.bool_)
    return np.asarray((coverage(lines, others) > MIN_INTO_NEIGHBOUR).any(1), np.bool_)


def _median_height(lines: Boxes) -> float:
    return float(np.median(lines[:, 3] - lines[:, 1])) if len(lines) else 0.0


def clustered(lines: Boxes, members: NDArray[np.intp]) -> list[list[int]]:
    """Paragraphs among the given lines: each next line close below the last, of similar height, in the same column.

    Where several would take a line, the one whose width agrees best gets it (margin notes beside a text).
    """
    groups: list[list[int]] = []
    last = np.zeros((len(members), 4), np.float32)
    for index in sorted(members, key=lambda member: (lines[member, 1], lines[member, 0])):
        line = lines[index]
        ends = last[: len(groups)]
        shared = np.minimum(ends[:, 2], line[2]) - np.maximum(ends[:, 0], line[0])
        widths = ends[:, 2] - ends[:, 0]
        height = line[3] - line[1]
        ratio = height / np.maximum(ends[:, 3] - ends[:, 1], 1e-6)
        fits = (shared > MIN_SHARED_WIDTH * np.minimum(widths, line[2] - line[0])) & (ratio < LINE_HEIGHT_RATIO)
        fits &= (ratio > 1 / LINE_HEIGHT_RATIO) & (line[1] - ends[:, 3] < MAX_LINE_GAP * height)
        if fits.any():
            agreement = shared / (widths + line[2] - line[0] - shared)
            group = int(np.where(fits, agreement, -1).argmax())
            groups[group].append(int(index))
        else:
            group = len(groups)
            groups.append([int(index)])
        last[group] = line
    return groups


def _rescued(lines: Boxes, group: list[int]) -> PageRegion:
    own = lines[group]
    others = np.delete(lines, group, axis=0)
    return PageRegion("text", RESCUED_SCORE, _without_bridge(own, others), _median_height(own))


def _without_bridge(own: Boxes, others: Boxes) -> NDArray[np.float32]:
    """The box around a paragraph's lines, cut where only the longest of them reaches into a neighbour."""
    box = union(own)
    longest = own[own[:, 2].argmax()]
    if len(own) >= MIN_LINES_TO_CUT:
        second = float(np.sort(own[:, 2])[-2])
        beyond = as_boxes([second, longest[1], longest[2], longest[3]])
        if longest[2] - second > longest[3] - longest[1] and (coverage(beyond, others) > MIN_INTO_NEIGHBOUR).any():
            box[2] = second
    return box


def merged(regions: list[PageRegion]) -> list[PageRegion]:
    """Text regions that overlap become one, with the label of the better; the filters behind us would drop one of them.

    Text regions mostly inside a table are its content and go.
    """
    kept: list[PageRegion] = []
    for region in sorted(regions, key=lambda one: (one.label in TEXT_LABELS, -one.score)):
        is_text = region.label in TEXT_LABELS
        if is_text and any(_overlap(region, other) > MIN_INSIDE for other in kept if other.label == "table"):
            continue
        partner = _text_partner(region, kept) if is_text else None
        while partner is not None:
            better = kept.pop(partner)
            box = union(as_boxes([better.box, region.box]))
            region = replace(better, box=box, line_height=better.line_height or region.line_height)
            partner = _text_partner(region, kept)
        kept.append(region)
    return kept


def _text_partner(region: PageRegion, kept: list[PageRegion]) -> int | None:
    for index, other in enumerate(kept):
        if other.label in TEXT_LABELS and _overlap(region, other) > MIN_MERGED_OVERLAP:
            return index
    return None


def _overlap(region: PageRegion, other: PageRegion) -> float:
    """Common area over the smaller area."""
    a, b = as_boxes(region.box), as_boxes(other.box)
    return float(max(coverage(a, b)[0, 0], coverage(b, a)[0, 0]))


def _plausible(region: PageRegion, height: int) -> PageRegion:
    """PicoDet takes short lines for headers and footers wherever they stand; Markdown would leave them out."""
    middle = (region.box[1] + region.box[3]) / 2 / height
    if (region.label == "header" and middle > HEADER_DEPTH) or (region.label == "footer" and middle < 1 - HEADER_DEPTH):
        return replace(region, label="text")
    return region


def _narrowed(boxes: Boxes, width: int) -> Boxes:
    """For the reading order: a line that reaches over the gutter by a letter must not join two columns."""
    inset = np.minimum(MAX_GUTTER_REACH * width, (boxes[:, 2] - boxes[:, 0]) / 4)
    narrow = boxes.copy()
    narrow[:, 0] += inset
    narrow[:, 2] -= inset
    return narrow


def _with_doc_title(regions: list[PageRegion], height: int) -> list[PageRegion]:
    """The topmost large title in the upper half of the page becomes the document's.

    PicoDet often calls it a header, but running heads are not set in large type.
    """
    heights = [region.line_height for region in regions if region.line_height > 0]
    if not heights:
        return regions
    large = TITLE_HEIGHT_RATIO * float(np.median(heights))
    titles = [
        (float(region.box[1]), index)
        for index, region in enumerate(regions)
        if region.label in TITLE_LABELS and region.line_height >= large and region.box[3] < height / 2
    ]
    if not titles:
        return regions
    _, first = min(titles)
    return [replace(region, label="doc_title") if index == first else region for index, region in enumerate(regions)]


def _with_aside(regions: list[PageRegion], width: int) -> list[PageRegion]:
    """A single upright stamp in the margin (arXiv's) is aside text. Several would be columns of vertical writing."""
    tall = [
        index
        for index, region in enumerate(regions)
        if region.label in TEXT_LABELS
        and region.box[3] - region.box[1] > STAMP_ASPECT * (region.box[2] - region.box[0])
    ]
    if len(tall) != 1 or len(regions) < MIN_REGIONS_BESIDE_STAMP:
        return regions
    stamp = regions[tall[0]]
    in_margin = stamp.box[2] < STAMP_MARGIN * width or stamp.box[0] > (1 - STAMP_MARGIN) * width
    return [replace(one, label="aside_text") if one is stamp and in_margin else one for one in regions]


def _with_margin(region: PageRegion, width: int, height: int) -> PageRegion:
    if region.label == "image":
        return region
    margin = MARGIN * max(width, height)
    box = region.box + np.array([-margin, -margin, margin, margin], np.float32)
    return replace(region, box=np.clip(box, 0, np.array([width, height] * 2, np.float32)))
