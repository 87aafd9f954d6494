import io
import json
import statistics
from pathlib import Path

import numpy as np
import pypdfium2
from PIL import Image

from hps import recognition
from hps.bench import page_mix
from hps.bench.page_mix import MixPage
from hps.layout import postprocess
from hps.layout.fixed import load_fixed
from hps.layout.page_inputs import LayoutInput
from hps.vlm import requests as vlm_requests


def pixels(image: Image.Image) -> np.ndarray:
    return np.ascontiguousarray(np.asarray(image)[:, :, ::-1])


def tasks(page: MixPage, table: Path) -> tuple[recognition.VlmTask, ...]:
    """What the pipeline makes of the page's picture."""
    image = pixels(page_mix.picture(page))
    (finish,) = load_fixed(table).detect([LayoutInput(image, page.width, page.height)])
    regions = postprocess.regions(finish(), (page.width, page.height), postprocess.LayoutRules())
    return recognition.plan(image, regions, recognition.RecognitionOptions()).tasks


def test_it_is_the_published_mix() -> None:
    mix = page_mix.pages(400)
    assert abs(statistics.fmean(len(page.blocks) for page in mix) - 11.9) < 0.1
    assert abs(statistics.fmean(page.tokens for page in mix) - 1067) < 60
    assert mix[:5] == page_mix.pages(5)
    assert mix[:5] != page_mix.pages(5, seed=8)


def test_every_page_and_every_crop_has_a_size_of_its_own() -> None:
    mix = page_mix.pages(64)
    assert len({(page.width, page.height) for page in mix}) == len(mix)
    sizes = [block.size for page in mix for block in page.blocks]
    assert len(set(sizes)) == len(sizes)


def test_the_pipeline_sends_every_block_at_the_size_that_the_table_knows(tmp_path: Path) -> None:
    mix = page_mix.pages(12)
    labels = {block.label for page in mix for block in page.blocks}
    assert labels == set(page_mix.PROMPTS)
    file = tmp_path / "mix.json"
    page_mix.write_table(mix, file)
    tokens = json.loads(file.read_text())["tokens"]
    for page in mix:
        sent = {(task.image.shape[1], task.image.shape[0], task.prompt) for task in tasks(page, file)}
        assert sent == {(*block.size, page_mix.PROMPTS[block.label]) for block in page.blocks}
        assert sum(tokens[f"{width}x{height}"] for width, height, _ in sent) == page.tokens
        encoded = vlm_requests.encoded_requests(tasks(page, file), "m")
        assert len(encoded) == len(page.blocks)


def test_a_pdf_of_the_pages_renders_at_their_sizes() -> None:
    mix = page_mix.pages(3)
    document = pypdfium2.PdfDocument(page_mix.pdf([page_mix.picture(page) for page in mix]))
    rendered = [document[number].render(scale=2.0) for number in range(3)]
    assert [(bitmap.width, bitmap.height) for bitmap in rendered] == [(page.width, page.height) for page in mix]
    for page in document:
        page.close()
    document.close()


def test_a_jpeg_is_the_page() -> None:
    (page,) = page_mix.pages(1)
    with Image.open(io.BytesIO(page_mix.jpeg(page_mix.picture(page)))) as image:
        assert image.size == (page.width, page.height)
