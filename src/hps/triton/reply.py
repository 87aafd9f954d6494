"""The one answer that a Triton request gets."""

import logging
import threading
from typing import Any

import numpy as np

from hps import contract
from hps.triton.stack import stack_of

log = logging.getLogger(__name__)


class Reply:
    """Owns a request's response sender: sends one response with FINAL, and never raises.

    `client_left` may be called from another thread than the answer. After the answer the sender is not touched again,
    for Triton then has freed what it refers to.
    """

    def __init__(self, pb_utils: Any, sender: Any) -> None:
        self._pb_utils = pb_utils
        self._sender = sender
        self._lock = threading.Lock()
        self._is_sent = False

    def envelope(self, envelope: bytes) -> None:
        """An answer in the contract's terms, errors included."""
        try:
            tensor = self._pb_utils.Tensor(contract.OUTPUT_TENSOR, np.array([[envelope]], dtype=np.object_))
            response = self._pb_utils.InferenceResponse(output_tensors=[tensor])
        except Exception as error:  # no shared memory for it, for example
            log.error("answer of %d bytes could not be made: %s", len(envelope), stack_of(error))
            self.triton_error("The answer could not be made", "INTERNAL")
            return
        self._send(response)

    def triton_error(self, message: str, code: str) -> None:
        """Where no envelope can be made or read. code: name of a TritonError code."""
        # By name: TritonError does not exist yet while Triton imports a model's file.
        error = self._pb_utils.TritonError(message, getattr(self._pb_utils.TritonError, code))
        self._send(self._pb_utils.InferenceResponse(output_tensors=[], error=error))

    def client_left(self) -> bool:
        """Whether Triton knows that nobody waits any more. Blocks for a round trip to the server."""
        with self._lock:
            if self._is_sent:
                return False
            try:
                return bool(self._sender.is_cancelled())
            except Exception as error:  # one sender must not end the watch over all
                log.error("a sender does not tell whether its client left: %s", stack_of(error))
                return False

    def _send(self, response: Any) -> None:
        with self._lock:
            if self._is_sent:
                log.error("a request was answered twice; the second answer is dropped")
                return
            self._is_sent = True
            try:
                self._sender.send(response, flags=self._pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
            except Exception as error:
                log.error("an answer could not be sent: %s", stack_of(error))
