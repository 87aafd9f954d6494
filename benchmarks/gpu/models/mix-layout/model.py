"""layout-detection with the work of a real model and the boxes of the benchmark's page mix.

The model's weights are random: it runs, 12 regions a page are laid over what it finds, decoded and outlined
(benchmarks/gpu/page_like.py), and then the boxes that the page mix has for a page of this size are answered.
"""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import triton_python_backend_utils as pb_utils

from hps.layout import backends
from hps.layout.fixed import load_fixed
from hps.layout.pytorch import checkpoint
from hps.layout.pytorch.backend import TransformersLayout
from hps.triton.layout_model import LayoutModel
from hps.triton.model_process import settings_of_process

sys.path.append(os.environ["BENCHMARK_ROOT"])
REGIONS = 12  # the mix has 11.9 blocks a page


class MixLayout:
    """LayoutBackend."""

    def __init__(self, real, known):
        self.inputs = real.inputs
        self._real = real
        self._known = known

    def detect(self, pages):
        found = self._real.detect(pages)
        known = self._known.detect(pages)
        return [partial(_worked_and_known, *pair) for pair in zip(found, known, strict=True)]


def _worked_and_known(work, known):
    work()
    return known()


class TritonPythonModel:
    def initialize(self, args):
        from benchmarks.gpu.page_like import load_page_like

        settings = settings_of_process()
        device = checkpoint.device(
            int(args["model_instance_device_id"]) if args["model_instance_kind"] == "GPU" else None
        )
        checkpoint.limit_threads(settings.layout_threads)
        inputs = backends.page_inputs(settings)
        max_batch = json.loads(args["model_config"])["max_batch_size"]

        def create():
            detection = load_page_like(
                settings.layout_model_dir,
                inputs.detection,
                device,
                max_batch,
                REGIONS,
                compiled=settings.layout_compile,
            )
            return MixLayout(TransformersLayout(inputs, detection), load_fixed(settings.layout_fixed_file))

        self.model = LayoutModel(
            pb_utils, create, ThreadPoolExecutor(settings.layout_threads, thread_name_prefix="finish")
        )

    def execute(self, requests):
        return self.model.execute(requests)

    def finalize(self):
        self.model.close()
