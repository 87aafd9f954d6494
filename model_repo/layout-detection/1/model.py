import json
from concurrent.futures import ThreadPoolExecutor

import triton_python_backend_utils as pb_utils

from hps.layout import backends
from hps.triton.layout_model import LayoutModel
from hps.triton.model_process import settings_of_process


class TritonPythonModel:
    """Layout detection: the pages of all requests in batches, through the one backend that this process owns."""

    def initialize(self, args):
        settings = settings_of_process()
        gpu = int(args["model_instance_device_id"]) if args["model_instance_kind"] == "GPU" else None
        max_batch = json.loads(args["model_config"])["max_batch_size"]
        self.model = LayoutModel(
            pb_utils,
            lambda: backends.create(settings, gpu=gpu, max_batch=max_batch),
            ThreadPoolExecutor(settings.layout_threads, thread_name_prefix="finish"),
        )

    def execute(self, requests):
        return self.model.execute(requests)

    def finalize(self):
        self.model.close()
