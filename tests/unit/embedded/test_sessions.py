"""What loading ONNX Runtime must not do."""

import os
import subprocess
import sys
from pathlib import Path


def test_onnx_runtime_reports_nothing_and_leaves_no_identifier(tmp_path: Path) -> None:
    elsewhere = {name: str(tmp_path) for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_DATA_HOME")}
    subprocess.run([sys.executable, "-c", "import hps.embedded.sessions"], env=os.environ | elsewhere, check=True)
    assert list(tmp_path.iterdir()) == []
