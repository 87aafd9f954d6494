"""One sample document and what is known about it; `entry` is its line in samples/manifest.json."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Outcome = Literal["parsed", "empty", "error", "parsed or error", "empty or error"]
ByPage = Mapping[int, tuple[str, ...]]


@dataclass(frozen=True)
class Document:
    path: str
    data: bytes
    kind: str
    pages: int = 1
    """What a correct parser counts: 0 where it must refuse the file."""
    file_type: int = 0
    """The `fileType` to send: 0 for PDF, 1 for images."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Request fields that the expected result needs."""
    outcome: Outcome = "parsed"
    snippets: ByPage = field(default_factory=dict)
    """Text that stands on the page, verbatim."""
    contains: ByPage = field(default_factory=dict)
    """Markup that the page's Markdown must contain."""
    reading_order: ByPage = field(default_factory=dict)
    """Snippets in the order in which a person reads them."""
    absent: tuple[str, ...] = ()
    """Text that is in the file but not on the displayed page."""
    page_sizes: tuple[tuple[int, int], ...] = ()
    """Displayed width and height of each page in pixels at 144 dpi (PDF), where that is the point."""
    error: tuple[str, ...] = ()
    """The refusal (status 422) names one of these words, in any case."""
    note: str = ""

    def entry(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "file": self.path,
            "kind": self.kind,
            "bytes": len(self.data),
            "sha256": hashlib.sha256(self.data).hexdigest(),
            "file_type": self.file_type,
            "pages": self.pages,
            "options": dict(self.options),
            "outcome": self.outcome,
        }
        for name in ("snippets", "contains", "reading_order"):
            if by_page := getattr(self, name):
                facts[name] = {str(page): list(texts) for page, texts in by_page.items()}
        if self.absent:
            facts["absent"] = list(self.absent)
        if self.page_sizes:
            facts["page_sizes"] = [list(size) for size in self.page_sizes]
        if self.error:
            facts["error"] = {"status": 422, "message_has_one_of": list(self.error)}
        if self.note:
            facts["note"] = self.note
        return facts
