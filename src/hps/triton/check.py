"""Whether the models behind a running Triton work: each public one answers a request made to show that."""

import json
import uuid

import httpx

from hps import contract, ports
from hps.settings import Settings

MODELS = (contract.LAYOUT_PARSING, contract.RESTRUCTURE_PAGES)


def problem(settings: Settings, timeout_s: float) -> str | None:
    """What is wrong, within `timeout_s` for each model; None when all is well.

    Triton's own health says "ready" over dead and hung model processes; only an answer is proof.
    """
    base = f"http://{ports.reachable(settings.triton_host)}:{settings.triton_http_port}"
    with httpx.Client(base_url=base, timeout=timeout_s, trust_env=False) as client:
        for model in MODELS:
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
