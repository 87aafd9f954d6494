"""Pages put together as one document: tables over page breaks, heading levels, one long page (SPEC E.5)."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

from hps.document import Block, ParsedPage
from hps.errors import InvalidInput
from hps.pruned_result import optional_parts
from hps.restructure_tables import with_merged_tables
from hps.restructure_titles import with_title_levels

_PARTS_BY_PAGE = ("layout_det_res", "doc_preprocessor_res")


def pages(
    parsed: Sequence[ParsedPage],
    *,
    merge_tables: bool = True,
    relevel_titles: bool = True,
    concatenate_pages: bool = False,
) -> tuple[ParsedPage, ...]:
    """The pages with document-wide ids and, as asked, merged tables, heading levels, all blocks on one page.

    No block is lost: a merged table leaves an empty block behind. Paragraphs are not joined over pages. Raises
    InvalidInput when there is nothing to concatenate.
    """
    if concatenate_pages and not parsed:
        raise InvalidInput("pages is empty: there is nothing to concatenate")
    numbers = count()
    blocks = [[_with_global_ids(block, next(numbers)) for block in page.blocks] for page in parsed]
    if merge_tables:
        blocks = with_merged_tables(blocks)
    if relevel_titles:
        blocks = with_title_levels(blocks)
    restructured = tuple(replace(page, blocks=tuple(own)) for page, own in zip(parsed, blocks, strict=True))
    return (_concatenated(restructured),) if concatenate_pages else restructured


def _with_global_ids(block: Block, number: int) -> Block:
    return replace(block, global_block_id=number, global_group_id=number)


def _concatenated(parsed: Sequence[ParsedPage]) -> ParsedPage:
    """One page with the size and settings of the first; what describes single pages becomes a list."""
    parts = [optional_parts(page) for page in parsed]
    carried: dict[str, Any] = dict(parsed[0].carried)
    for key in _PARTS_BY_PAGE:
        if any(key in part for part in parts):
            carried[key] = [part.get(key) for part in parts]
    # A block without a group reports its position, which is about to change.
    blocks = tuple(
        replace(block, group_id=position if block.group_id is None else block.group_id)
        for page in parsed
        for position, block in enumerate(page.blocks)
    )
    return replace(
        parsed[0],
        blocks=blocks,
        pictures={path: picture for page in parsed for path, picture in page.pictures.items()},
        page_count=len(parsed),
        carried=carried,
    )
