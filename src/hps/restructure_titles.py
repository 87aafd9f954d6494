"""Heading levels of the paragraph titles of a whole document (SPEC E.5), from their numbering and their height."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hps.document import Block

_CLUSTERS = 4
_SEED = 42
_MAX_ITERATIONS = 300
_TOLERANCE = 1e-4

_DECIMAL = "decimal"
_DECIMAL_NUMBER = re.compile(r"\d+(?:\.\d+)*")
# Tested in this order, before decimal numbers: kind, form, level of its own.
_NUMBERINGS = (
    ("bracketed", re.compile(r"[(（]?\d+(?:\.\d+)*[)）]"), 4),
    ("roman", re.compile(r"[IVX]+(?:[.．)\s]|\Z)", re.IGNORECASE), 1),
    (
        "chinese",
        re.compile(r"[第(（]?[一二三四五六七八九十]{1,2}(?:[章节篇卷部条题讲课回）)]|(?![a-zA-Z\u4e00-\u9fa5]))"),
        1,
    ),
    ("letter", re.compile(r"[A-Z][.．)\s]", re.IGNORECASE), 2),
)

_TOP_LEVEL_TITLES = frozenset(
    {
        "ABSTRACT",
        "SUMMARY",
        "RESUME",
        "CONTENTS",
        "REFERENCES",
        "REFERENCE",
        "APPENDIX",
        "APPENDICES",
        "ACKNOWLEDGMENTS",
        "INTRODUCTION",
        "BACKGROUNDANDRELATEDWORK",
        "BACKGROUND",
        "RELATEDWORK",
        "THEORETICALMODELS",
        "DATA",
        "METHOD",
        "METHODS",
        "METHODOLOGY",
        "TOPICANALYSIS",
        "RESULT",
        "RESULTS",
        "DISCUSSION",
        "CONCLUSIONS",
        "CONCLUSION",
        "LIMITATIONS",
        "绪论",
        "引言",
        "参考文献",
        "附录",
        "研究背景",
        "相关工作",
        "研究方法",
        "实验结果",
        "讨论",
        "结论",
        "致谢",
        "目录",
    }
)


def with_title_levels(pages: Sequence[Sequence[Block]]) -> list[list[Block]]:
    """The same blocks; those labelled paragraph_title have their `title_level` set (1 is the top, but see SPEC)."""
    titles = [block for page in pages for block in page if block.label == "paragraph_title"]
    levels = iter(_levels(titles))
    return [
        [replace(block, title_level=next(levels)) if block.label == "paragraph_title" else block for block in page]
        for page in pages
    ]


def _levels(titles: Sequence[Block]) -> list[int]:
    heights = [_line_height(title) for title in titles]
    cluster_levels = _levels_of_heights(heights)
    numberings = [_numbering(title.content) for title in titles]
    kinds = dict.fromkeys(kind for kind, _ in numberings if kind is not None)
    order_of_kind = {kind: order for order, kind in enumerate(kinds, start=1)}
    first_decimal = next((own for kind, own in numberings if kind == _DECIMAL), 0)
    levels = []
    for title, height, (kind, own) in zip(titles, heights, numberings, strict=True):
        by_height = cluster_levels[height]
        if kind is not None:
            relative = order_of_kind[kind] + (own - first_decimal if kind == _DECIMAL else 0)
            levels.append(_vote(own, relative, by_height))
        elif _is_top_level_title(title.content):
            levels.append(1)
        else:
            levels.append(by_height)
    return levels


def _vote(own: int, relative: int, by_height: int) -> int:
    level, votes = Counter((own, relative, by_height)).most_common(1)[0]
    return level if votes > 1 else relative


def _line_height(title: Block) -> int:
    """Height of a line in pixels: upright titles run from top to bottom, so their lines lie side by side."""
    width, height = title.box[2] - title.box[0], title.box[3] - title.box[1]
    lines = title.content.count("\n") + 1
    return int((height if width >= height else width) / lines)


def _numbering(content: str) -> tuple[str | None, int]:
    """Kind of number at the start of a title and the level that this kind stands for, or (None, 0)."""
    text = content.strip()
    for kind, form, level in _NUMBERINGS:
        if form.match(text):
            return kind, level
    decimal = _DECIMAL_NUMBER.match(text)
    return (_DECIMAL, decimal[0].count(".") + 1) if decimal else (None, 0)


def _is_top_level_title(content: str) -> bool:
    return content.upper().strip().rstrip("：: ").replace(" ", "") in _TOP_LEVEL_TITLES


def _levels_of_heights(heights: Sequence[int]) -> dict[int, int]:
    """Level by height, the largest first; more than four heights are grouped into four."""
    distinct = sorted(set(heights), reverse=True)
    if len(distinct) <= _CLUSTERS:
        return {height: level for level, height in enumerate(distinct, start=1)}
    centres = np.sort(_cluster_centres(np.array(heights, np.float64), _CLUSTERS))[::-1]
    return {height: int(np.argmin(np.abs(centres - height))) + 1 for height in distinct}


def _cluster_centres(values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Centres of `count` clusters of numbers with at least so many different values: k-means, deterministic."""
    mean = values.mean()
    centred = values - mean
    centres = _first_centres(centred, count)
    tolerance = _TOLERANCE * centred.var()
    labels = np.full(len(centred), -1)
    for _ in range(_MAX_ITERATIONS):
        distances = (centred[:, None] - centres) ** 2
        nearest = distances.argmin(axis=1)
        moved = _centres_of(centred, nearest, distances, count)
        shift = ((moved - centres) ** 2).sum()
        centres = moved
        if (nearest == labels).all() or shift <= tolerance:
            break
        labels = nearest
    result: NDArray[np.float64] = centres + mean
    return result


def _first_centres(values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """k-means++: each further centre is the best of a few candidates drawn by squared distance to the others.

    The draws are those of the reference's library for its seed, so that equal documents get equal levels.
    """
    random = np.random.RandomState(_SEED)
    candidates_count = 2 + int(np.log(count))
    first = random.choice(len(values), p=np.full(len(values), 1 / len(values)))
    centres = [values[first]]
    nearest = (values - values[first]) ** 2
    while len(centres) < count:
        cumulated = nearest.cumsum()
        drawn = random.uniform(size=candidates_count) * nearest.sum()
        candidates = np.searchsorted(cumulated, drawn).clip(max=len(values) - 1)
        remaining = np.minimum(nearest, (values - values[candidates][:, None]) ** 2)
        best = int(remaining.sum(axis=1).argmin())
        nearest = remaining[best]
        centres.append(values[candidates[best]])
    return np.array(centres)


def _centres_of(
    values: NDArray[np.float64], labels: NDArray[np.intp], distances: NDArray[np.float64], count: int
) -> NDArray[np.float64]:
    """Means of the clusters; a cluster that lost all its members starts again at the value farthest from its centre."""
    labels = labels.copy()
    own_distances = distances[np.arange(len(values)), labels]
    for empty in np.setdiff1d(np.arange(count), labels):
        farthest = int(own_distances.argmax())
        labels[farthest], own_distances[farthest] = empty, 0.0
    sizes = np.bincount(labels, minlength=count)
    means: NDArray[np.float64] = np.bincount(labels, weights=values, minlength=count) / np.maximum(sizes, 1)
    return means
