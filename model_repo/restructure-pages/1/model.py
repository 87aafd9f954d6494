import triton_python_backend_utils as pb_utils

from hps import build
from hps.triton.model_process import settings_of_process
from hps.triton.serving import RequestServer


class TritonPythonModel:
    """Page restructuring: tables over pages and heading levels of pages that were parsed before."""

    def initialize(self, args):
        settings = settings_of_process()
        self.server = RequestServer.of(pb_utils, build.restructurer(settings), settings, "restructure-pages")

    def execute(self, requests):
        return self.server.submit(requests)

    def finalize(self):
        self.server.close()
