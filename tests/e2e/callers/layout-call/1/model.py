"""Asks layout-detection about blank pages: `{"pages": [[width, height], …], "orientation": bool, "grid": bool}`."""

import asyncio
import json

import numpy as np
import triton_python_backend_utils as pb_utils

from hps import contract
from hps.layout.backends import page_inputs
from hps.triton.bls import BlsLayoutDetector
from hps.triton.model_process import settings_of_process
from hps.triton.serving import RequestServer


class LayoutCall:
    def __init__(self, detector):
        self.detector = detector

    async def start(self):
        pass

    async def handle(self, body, context):
        request = json.loads(body)
        pages = [np.full((height, width, 3), 255, np.uint8) for width, height in request["pages"]]
        if request.get("orientation"):
            return contract.success(context.id, {"angles": [await self.detector.orientation(page) for page in pages]})
        if request.get("grid"):
            grids = await asyncio.gather(*map(self.detector.grid, pages))
            return contract.success(context.id, {"shapes": [grid.shape for grid in grids]})
        found = await asyncio.gather(*map(self.detector.detect, pages))
        return contract.success(context.id, {"rows": [detections.rows.tolist() for detections in found]})

    async def probe(self):
        pass

    async def close(self):
        pass


class TritonPythonModel:
    def initialize(self, args):
        settings = settings_of_process()
        detector = BlsLayoutDetector(pb_utils, page_inputs(settings))
        self.server = RequestServer.of(pb_utils, LayoutCall(detector), settings)

    def execute(self, requests):
        return self.server.submit(requests)

    def finalize(self):
        self.server.close()
