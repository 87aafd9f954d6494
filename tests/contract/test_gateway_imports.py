"""The gateway's image has nothing of the pipeline, so the gateway must import nothing of it."""

import subprocess
import sys

ALLOWED = {
    f"hps.{name}"
    for name in (
        "api_keys",
        "compose_settings",
        "context",
        "contract",
        "errors",
        "memory",
        "metrics",
        "settings",
        "version",
    )
}
HEAVY = {"cv2", "onnxruntime", "pypdfium2", "PIL", "triton_python_backend_utils"}


def test_the_gateway_imports_only_the_shared_modules() -> None:
    program = "import gateway.__main__, gateway.app, sys; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    )
    assert {name for name in loaded if name.split(".")[0] == "hps"} == {"hps", *ALLOWED}
    assert not {name.split(".")[0] for name in loaded} & HEAVY
