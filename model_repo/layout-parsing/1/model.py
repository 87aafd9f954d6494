import triton_python_backend_utils as pb_utils

from hps import build
from hps.layout.backends import page_inputs
from hps.triton.bls import BlsLayoutDetector
from hps.triton.model_process import settings_of_process
from hps.triton.serving import RequestServer


class TritonPythonModel:
    """Document parsing: every request through the pipeline, answered as soon as it is ready."""

    def initialize(self, args):
        settings = settings_of_process()
        detector = BlsLayoutDetector(pb_utils, page_inputs(settings))
        self.server = RequestServer.of(pb_utils, build.parser(settings, detector), settings, "layout-parsing")

    def execute(self, requests):
        return self.server.submit(requests)

    def finalize(self):
        self.server.close()
