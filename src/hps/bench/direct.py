"""The same crops sent straight to the VLM servers: what the tier can do when nothing stands in front of it."""

import asyncio
import base64
import io
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self

import aiohttp
import cv2
import numpy as np

from hps import recognition
from hps.bench import load, page_mix
from hps.bench.documents import Document
from hps.bench.load import Clock, Service
from hps.bench.page_mix import MixPage
from hps.document import Image, Region
from hps.layout.labels import CLASS_IDS
from hps.recognition import RecognitionOptions
from hps.vlm import requests as vlm_requests

TRIAL_PAGES = 64  # of a try at least, and so many that most of the time all requests are in flight
HELPS = 1.03  # a step that gains less is not worth its latency


@dataclass(frozen=True, slots=True)
class PageCrops:
    """Requests to the VLM server, longest block first, as the pipeline sends them."""

    bodies: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class DirectRun:
    """in_flight: requests at once. blocks: answered ones. errors: what became of the others → how many. seconds: of the
    whole set of pages."""

    in_flight: int
    pages: int
    blocks: int
    tokens: int
    errors: dict[str, int]
    seconds: float

    @property
    def pages_per_s(self) -> float:
        """Of pages as if they were whole: a block that failed is missing."""
        return self.pages * self.blocks / max(1, self.blocks + sum(self.errors.values())) / self.seconds


# --- which crops ---


def of_mix(mix: Sequence[MixPage], model: str) -> list[PageCrops]:
    """Of the pages as their image files show them."""
    return [_crops(_read(page_mix.jpeg(page_mix.picture(page))), _layout(page), model) for page in mix]


async def of_documents(service: Service, documents: Sequence[Document], model: str) -> list[PageCrops]:
    """Of the pages as the service itself sees them: it is asked once for every page's picture and blocks.

    The picture has been through JPEG, and joined blocks count separately; otherwise these are the service's own crops.
    """
    pages = []
    for document in documents:
        body = json.loads(document.body) | {"visualize": True}
        status, envelope = await service.post(json.dumps(body).encode())
        if status != HTTPStatus.OK:
            raise ValueError(f"{document.name}: the service answers {status}")
        for page in envelope["result"]["layoutParsingResults"]:
            image = _read(base64.b64decode(page["inputImage"]))
            blocks = [(block["block_label"], block["block_bbox"]) for block in page["prunedResult"]["parsing_res_list"]]
            pages.append(_crops(image, blocks, model))
    return pages


def _layout(page: MixPage) -> list[tuple[str, Sequence[int]]]:
    return [(block.label, block.box) for block in page.blocks]


def _read(file: bytes) -> Image:
    image = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR)
    return np.asarray(image, np.uint8)


def _crops(image: Image, blocks: Sequence[tuple[str, Sequence[int]]], model: str) -> PageCrops:
    regions = [
        Region(CLASS_IDS.get(label, 0), label, 1.0, (int(x1), int(y1), int(x2), int(y2)))
        for label, (x1, y1, x2, y2) in blocks
    ]
    tasks = recognition.plan(image, regions, RecognitionOptions(merge_layout_blocks=False)).tasks
    encoded = vlm_requests.encoded_requests(sorted(tasks, key=vlm_requests.work_rank), model)
    return PageCrops(tuple(request.body() for request in encoded))


# --- sending them ---


class VlmTier:
    """The VLM servers at `urls`, each request to the one with the fewest outstanding."""

    def __init__(self, urls: Sequence[str], *, api_key: str | None = None) -> None:
        self._urls = [f"{url}/v1/chat/completions" for url in urls]
        self._outstanding = [0] * len(urls)
        self._headers = load.headers(api_key)

    async def __aenter__(self) -> Self:
        self._http = load.session(self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.close()

    async def tokens_of(self, body: bytes) -> int | str:
        """Tokens of the answer; what happened when there was none."""
        place = min(range(len(self._urls)), key=self._outstanding.__getitem__)
        self._outstanding[place] += 1
        try:
            async with self._http.post(self._urls[place], data=io.BytesIO(body)) as response:
                content = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            return type(error).__name__
        finally:
            self._outstanding[place] -= 1
        if response.status != HTTPStatus.OK:
            return f"status {response.status}"
        return int((json.loads(content).get("usage") or {}).get("completion_tokens") or 0)

    async def run(self, pages: Sequence[PageCrops], in_flight: int) -> DirectRun:
        """All crops of all pages, page by page."""
        bodies = iter([body for page in pages for body in page.bodies])
        answers: list[int | str] = []

        async def worker() -> None:
            for body in bodies:
                answers.append(await self.tokens_of(body))

        clock = Clock()
        await asyncio.gather(*(worker() for _ in range(in_flight)))
        tokens = [answer for answer in answers if isinstance(answer, int)]
        errors = Counter(answer for answer in answers if isinstance(answer, str))
        return DirectRun(in_flight, len(pages), len(tokens), sum(tokens), dict(errors), clock.seconds())

    async def page_latencies(self, pages: Sequence[PageCrops]) -> list[float]:
        """Seconds of each page by itself: all its blocks at once, until the last is answered."""
        found = []
        for page in pages:
            clock = Clock()
            await asyncio.gather(*map(self.tokens_of, page.bodies))
            found.append(clock.seconds())
        return found

    async def best(self, pages: Sequence[PageCrops], concurrencies: Sequence[int]) -> list[DirectRun]:
        """All pages at the concurrency that suits the servers best; the tries before, on some of the pages, come first.

        Tries ascend, and end when the next one helps no more.
        """
        tries: list[DirectRun] = []
        for in_flight in sorted(concurrencies) if len(concurrencies) > 1 else ():
            tries.append(await self.run(pages[: max(TRIAL_PAGES, in_flight // 6)], in_flight))
            if len(tries) > 1 and tries[-1].pages_per_s < HELPS * max(run.pages_per_s for run in tries[:-1]):
                break
        best = max(tries, key=lambda run: run.pages_per_s).in_flight if tries else concurrencies[0]
        return [*tries, await self.run(pages, best)]
