"""Keeps the layout model busy as a coordinator does: `{"calls": n, "in_flight": n, "page": [width, height]}`."""

import asyncio
import json
import time

import cv2
import numpy as np
import triton_python_backend_utils as pb_utils

from hps import contract
from hps.layout.backends import page_inputs
from hps.triton.bls import BlsLayoutDetector
from hps.triton.model_process import settings_of_process
from hps.triton.serving import RequestServer

DISTINCT_PAGES = 16


class LayoutLoad:
    def __init__(self, detector):
        self.detector = detector

    async def start(self):
        pass

    async def handle(self, body, context):
        request = json.loads(body)
        pages = [page(*request["page"], seed) for seed in range(DISTINCT_PAGES)]
        waits = []
        regions = 0
        turns = iter(range(request["calls"]))

        async def worker():
            nonlocal regions
            for number in turns:
                started = time.perf_counter()
                found = await self.detector.detect(pages[number % len(pages)])
                waits.append(time.perf_counter() - started)
                regions += len(found.rows)

        started = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(request["in_flight"])))
        elapsed = time.perf_counter() - started
        return contract.success(context.id, {"seconds": elapsed, "waits": sorted(waits), "regions": regions})

    async def probe(self):
        pass

    async def close(self):
        pass


def page(width, height, seed):
    """Grey blocks on white, each page its own."""
    random = np.random.default_rng(seed)
    image = np.full((height, width, 3), 255, np.uint8)
    for _ in range(40):
        x, y = int(random.integers(width)), int(random.integers(height))
        corner = (x + int(random.integers(width // 2)), y + int(random.integers(1, max(2, height // 12))))
        cv2.rectangle(image, (x, y), corner, (int(random.integers(200)),) * 3, cv2.FILLED)
    return image


class TritonPythonModel:
    def initialize(self, args):
        settings = settings_of_process()
        detector = BlsLayoutDetector(pb_utils, page_inputs(settings))
        self.server = RequestServer.of(pb_utils, LayoutLoad(detector), settings)

    def execute(self, requests):
        return self.server.submit(requests)

    def finalize(self):
        self.server.close()
