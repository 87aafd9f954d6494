"""layout-detection with benchmarks.gpu.page_like around the model: what real pages cost behind the model."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import triton_python_backend_utils as pb_utils

from hps.layout import backends
from hps.layout.pytorch import checkpoint
from hps.layout.pytorch.backend import TransformersLayout
from hps.triton.layout_model import LayoutModel
from hps.triton.model_process import settings_of_process

sys.path.append(os.environ["BENCHMARK_ROOT"])


class TritonPythonModel:
    def initialize(self, args):
        from benchmarks.gpu.page_like import load_page_like

        settings = settings_of_process()
        device = checkpoint.device(
            int(args["model_instance_device_id"]) if args["model_instance_kind"] == "GPU" else None
        )
        checkpoint.limit_threads(settings.layout_threads)
        inputs = backends.page_inputs(settings)

        def create():
            detection = load_page_like(
                settings.layout_model_dir,
                inputs.detection,
                device,
                json.loads(args["model_config"])["max_batch_size"],
                int(os.environ["BENCHMARK_REGIONS"]),
                compiled=settings.layout_compile,
            )
            return TransformersLayout(inputs, detection)

        self.model = LayoutModel(pb_utils, create, ThreadPoolExecutor(settings.layout_threads))

    def execute(self, requests):
        return self.model.execute(requests)

    def finalize(self):
        self.model.close()
