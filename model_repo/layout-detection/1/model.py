import triton_python_backend_utils as pb_utils

from hps.layout import backends
from hps.triton.layout_model import LayoutModel
from hps.triton.model_process import settings_of_process


class TritonPythonModel:
    """Layout detection: the pages of all requests in batches, through the one backend that this process owns."""

    def initialize(self, args):
        settings = settings_of_process()
        self.model = LayoutModel(
            pb_utils,
            lambda: backends.create(
                settings.layout_backend,
                fixed_file=str(settings.layout_fixed_file or ""),
                threads=settings.layout_threads,
            ),
        )

    def execute(self, requests):
        return self.model.execute(requests)
