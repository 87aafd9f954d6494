"""The 25 classes that PP-DocLayoutV2 and V3 share, and the tables that hang on them (SPEC C.1, C.4).

A class id is the position in `LABELS`.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

MergeMode = Literal["large", "small", "union"]

LABELS: Final[tuple[str, ...]] = (
    "abstract",
    "algorithm",
    "aside_text",
    "chart",
    "content",
    "display_formula",
    "doc_title",
    "figure_title",
    "footer",
    "footer_image",
    "footnote",
    "formula_number",
    "header",
    "header_image",
    "image",
    "inline_formula",
    "number",
    "paragraph_title",
    "reference",
    "reference_content",
    "seal",
    "table",
    "text",
    "vertical_text",
    "vision_footnote",
)

CLASS_IDS: Final[Mapping[str, int]] = MappingProxyType({label: class_id for class_id, label in enumerate(LABELS)})

# Regions that carry no reading-order number. `number`, `formula_number`, `seal` and `vertical_text` do carry one.
UNORDERED_LABELS: Final[frozenset[str]] = frozenset(
    {
        "figure_title",
        "vision_footnote",
        "image",
        "chart",
        "table",
        "header",
        "header_image",
        "footer",
        "footer_image",
        "footnote",
        "aside_text",
    }
)

_LARGE_WINS: Final = ("chart", "display_formula", "doc_title", "inline_formula", "paragraph_title")

# Containment filter of all three releases.
DEFAULT_MERGE_MODES: Final[Mapping[int, MergeMode]] = MappingProxyType(
    {class_id: "large" if label in _LARGE_WINS else "union" for class_id, label in enumerate(LABELS)}
)

# Of releases 1.5 and 1.6 (PP-DocLayoutV3); the first release has a table by class.
DEFAULT_THRESHOLD: Final = 0.3
