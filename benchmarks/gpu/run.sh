#!/usr/bin/env bash
# A module in the Python that unpack.sh laid out.   benchmarks/gpu/run.sh TARGET MODULE ARGUMENTS…
set -euo pipefail
target=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
python=$target/python
[ -e "$python/lib/python3.12/site-packages/numpy/__init__.py" ] && [ -x "$python/bin/python3" ] || {
  echo "parts a, b and c are not all in $target: unpack them in this machine first" >&2
  exit 3
}
# The packages of the machine's own python3, linked beside ours, less those that were built for NumPy 2 and that
# transformers would import if it saw them. Nothing is unpacked over these links: they come last.
python3 - "$python/lib/python3.12/site-packages" <<'PY'
import re, sys
from pathlib import Path

import torch

OTHERS = """accelerate bottleneck cupy cupyx cv2 datasets flax h5py jax jaxlib kernels librosa matplotlib numba numexpr numpy
onnx onnxruntime onnxscript opencv_python_headless pandas peft pyarrow scikit_image scikit_learn scipy skimage sklearn
soundfile statsmodels tensorboard tensorflow timm torchaudio torchvision""".split()
ours, theirs = Path(sys.argv[1]), Path(torch.__file__).parents[1]
present = {re.split(r"[.-]", path.name)[0].lower() for path in ours.iterdir() if not path.is_symlink()}
for path in theirs.iterdir():
    name = re.split(r"[.-]", path.name)[0].lower()
    link = ours / path.name
    if name and name not in OTHERS and name not in present and path.suffix != ".pth" and not link.is_symlink():
        link.symlink_to(path)
PY

export LD_LIBRARY_PATH="$python/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export PATH="$python/bin:$PATH" PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
echo "$PWD/src" >"$python/lib/python3.12/site-packages/hps.pth" # Triton's stub looks at no PYTHONPATH
"$python/bin/python3" -c 'import numpy, cv2, torch, transformers, pydantic, tritonclient.grpc
print("numpy", numpy.__version__, "opencv", cv2.__version__, "torch", torch.__version__, "transformers", transformers.__version__,
      "gpu", torch.cuda.get_device_name() if torch.cuda.is_available() else None)'
exec "$python/bin/python3" -m "${@:2}"
