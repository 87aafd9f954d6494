"""Whether the models behind a running Triton work: each public one answers a request made to show that."""

import json
import threading
import time
import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import httpx

from hps import contract, ports
from hps.settings import Settings

MODELS = (contract.LAYOUT_PARSING, contract.RESTRUCTURE_PAGES)


def problem(settings: Settings, timeout_s: float, models: Sequence[str] = MODELS) -> str | None:
    """What is wrong with these models, within `timeout_s` for each; None when all is well.

    Triton's own health says "ready" over dead and hung model processes; only an answer is proof.
    """
    base = f"http://{ports.reachable(settings.triton_host)}:{settings.triton_http_port}"
    with httpx.Client(base_url=base, timeout=timeout_s, trust_env=False) as client:
        for model in models:
            try:
                response = client.post(f"/v2/models/{model}/infer", json=_probe(timeout_s))
            except httpx.HTTPError as error:
                return f"{model}: {type(error).__name__}"
            if response.status_code != 200:
                return f"{model}: status {response.status_code}"
            envelope = json.loads(response.json()["outputs"][0]["data"][0])
            if envelope["errorCode"] != 0:
                return f"{model}: {envelope['errorMsg']}"
    return None


def _probe(timeout_s: float) -> dict[str, object]:
    return {
        "id": f"probe-{uuid.uuid4()}",
        "parameters": {contract.PROBE_PARAMETER: True, contract.TIMEOUT_PARAMETER: int(timeout_s * 1e6)},
        "inputs": [{"name": contract.INPUT_TENSOR, "shape": [1, 1], "datatype": "BYTES", "data": ["{}"]}],
    }


class Watchdog:
    """Asks the models again and again, in a thread of its own, while it is open. timeout_s: 0 to leave it."""

    PAUSE_S = 1.0

    def __init__(self, settings: Settings, timeout_s: float, models: Sequence[str]) -> None:
        self._settings = settings
        self._models = models
        self._timeout_s = timeout_s
        self._answered_at = self._looked_at = time.monotonic()
        self._problem: str | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        if self._timeout_s:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()

    def silence(self) -> str | None:
        """What has been wrong for longer than the time limit. To be called often: a time in which nobody did, because
        this process was stopped or the machine slept, says nothing of the models."""
        now = time.monotonic()
        if (missed := now - self._looked_at) > self.PAUSE_S:
            self._answered_at += missed
        self._looked_at = now
        if not self._timeout_s or now - self._answered_at < self._timeout_s:
            return None
        return self._problem or "no model answers"

    def _run(self) -> None:
        while not self._closed.wait(self.PAUSE_S):
            self._problem = problem(self._settings, self._timeout_s, self._models)
            if self._problem is None:
                self._answered_at = time.monotonic()
