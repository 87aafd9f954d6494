"""Pages a second through Triton's model layout-detection, called as coordinators call it.

    python -m benchmarks.gpu.layout_triton --size full --mode eager compiled --calls 4000

Starts `hps triton` with the shipped layout-detection and a coordinator that only detects layouts, on random weights of
PP-DocLayoutV3 at the size that is asked for. `--size none` runs the backend `fixed` instead: what Triton and the calls
cost by themselves. Random weights find nothing, so that no outline is drawn; `--regions N` lays the answers of a page
with N regions over theirs (benchmarks/gpu/page_like.py).
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as grpcclient

ROOT = Path(__file__).parents[2]
HTTP, GRPC, METRICS = 28000, 28001, 28002
START_S = 570  # of a first compilation
IN_PROCESS_BATCHES = 60


def main() -> int:
    options = _options()
    rows = []
    with tempfile.TemporaryDirectory(prefix="hps-layout-bench-") as scratch:
        folder = Path(scratch)
        if options.size != "none":
            _in_child("checkpoint", folder / "checkpoint", options)
        for mode in options.mode:
            if options.size != "none" and not options.skip_in_process:
                rows.append(_in_process(folder, mode, options))
                _print(rows[-1])
            rows += _through_triton(folder, mode, options)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=["full", "tiny", "none"], default="full")
    parser.add_argument("--mode", choices=["eager", "compiled"], nargs="+", default=["eager"])
    parser.add_argument("--regions", type=int, default=0, help="of each page, outlined; 0: what random weights find")
    parser.add_argument("--calls", type=int, default=4000)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--threads", type=int, default=8, help="of the layout process, which draw outlines")
    parser.add_argument("--pages", nargs="+", default=["800x800", "1654x2339"], help="page sizes, each a run")
    parser.add_argument("--cache", type=Path, help="folder for compiled code")
    parser.add_argument("--skip-in-process", action="store_true")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    parser.add_argument("--child", choices=["checkpoint", "in-process"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child == "checkpoint":
        _write_checkpoint(options.folder, options)
        sys.exit(0)
    if options.child == "in-process":
        print(json.dumps(_measure_in_process(options.folder, options)))
        sys.exit(0)
    return options


def _in_child(what: str, folder: Path, options: argparse.Namespace) -> str:
    """Work with PyTorch, in a process that gives the GPU back. Its last line."""
    arguments = ["--child", what, "--folder", folder, "--size", options.size, "--mode", options.mode[0]]
    arguments += ["--regions", options.regions, "--batch", options.batch, "--threads", options.threads]
    if options.cache:
        arguments += ["--cache", options.cache]
    command = [sys.executable, "-m", "benchmarks.gpu.layout_triton", *map(str, arguments)]
    result = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=START_S)
    return result.stdout.strip().rpartition("\n")[2]


# --- the model ---


def _write_checkpoint(folder: Path, options: argparse.Namespace) -> None:
    import torch
    from transformers import PPDocLayoutV3Config, PPDocLayoutV3ForObjectDetection

    torch.manual_seed(0)
    if options.size == "tiny":
        from tests.torch.checkpoints import layout_v3

        model = layout_v3()
    else:
        model = PPDocLayoutV3ForObjectDetection(PPDocLayoutV3Config(num_labels=25)).eval()
    model.save_pretrained(folder)


def _in_process(folder: Path, mode: str, options: argparse.Namespace) -> dict[str, Any]:
    """The backend without Triton: copies, model, decoding and outlines, one batch after the other."""
    single = argparse.Namespace(**(vars(options) | {"mode": [mode]}))
    found: dict[str, Any] = json.loads(_in_child("in-process", folder / "checkpoint", single))
    return {"what": "in process", "mode": mode, "page": "800x800", "batch": options.batch} | found


def _measure_in_process(checkpoint: Path, options: argparse.Namespace) -> dict[str, Any]:
    from concurrent.futures import ThreadPoolExecutor

    import torch

    from benchmarks.gpu.page_like import load_page_like
    from hps.layout.page_inputs import LayoutInput, Stretched
    from hps.layout.pytorch.detection import load_detection

    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(options.threads)
    started = time.perf_counter()
    compiled = options.mode[0] == "compiled"
    form = Stretched(800, 800)
    if options.regions:
        model = load_page_like(checkpoint, form, device, options.batch, options.regions, compiled=compiled)
    else:
        model = load_detection(checkpoint, form, device, options.batch, compiled=compiled, cache=options.cache)
    start_s = time.perf_counter() - started
    image = np.random.default_rng(1).integers(0, 256, (800, 800, 3), dtype=np.uint8)
    pages = [LayoutInput(image, 1654, 2339)] * options.batch
    batches = IN_PROCESS_BATCHES if device != "cpu" else 2
    times = []
    for _ in range(batches):
        started = time.perf_counter()
        finishes = model.detect(pages)
        times.append(time.perf_counter() - started)
    started = time.perf_counter()
    rows = len(finishes[0]().rows)
    outline_ms = (time.perf_counter() - started) * 1000
    with ThreadPoolExecutor(options.threads) as pool:
        started = time.perf_counter()
        list(pool.map(lambda finish: finish(), finishes * 4))
        pooled_ms = (time.perf_counter() - started) * 1000 / (4 * len(finishes))
    return {
        "device": torch.cuda.get_device_name() if device != "cpu" else "CPU",
        "torch": torch.__version__,
        "start_s": round(start_s, 1),
        "batch_ms": round(float(np.median(times)) * 1000, 2),
        "pages_per_s": round(options.batch / float(np.median(times)), 1),
        "rows_per_page": rows,
        "outlines_ms_per_page": round(outline_ms, 2),
        "outlines_ms_per_page_pooled": round(pooled_ms, 2),
    }


# --- through Triton ---


def _through_triton(folder: Path, mode: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    models = folder / f"models-{mode}"
    shutil.copytree(ROOT / "model_repo" / "layout-detection", models / "layout-detection")
    ours = ROOT / "benchmarks" / "gpu" / "models"
    shutil.copytree(ours / "layout-load", models / "layout-load")
    if options.regions and options.size != "none":
        shutil.copy(ours / "page-like" / "model.py", models / "layout-detection" / "1" / "model.py")
    log = folder / f"triton-{mode}.log"
    started = time.perf_counter()
    with log.open("wb") as file:
        command = [sys.executable, "-m", "hps", "triton"]
        process = subprocess.Popen(
            command, cwd=ROOT, env=_environment(folder, models, mode, options), stdout=file, stderr=subprocess.STDOUT
        )
    try:
        _wait_until_ready(process, log)
        start_s = round(time.perf_counter() - started, 1)
        rows = []
        for page in options.pages:
            # The first run warms the loop's threads and the shared memory.
            _load(page, min(options.calls, 4 * options.in_flight), options)
            row = {"what": "through Triton", "mode": mode, "start_s": start_s} | _load(page, options.calls, options)
            _print(row)
            rows.append(row)
        return rows
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        if options.out:
            shutil.copy(log, options.out.with_name(log.name))


def _environment(folder: Path, models: Path, mode: str, options: argparse.Namespace) -> dict[str, str]:
    values: dict[str, Any] = {
        "model_repository": models,
        "triton_host": "127.0.0.1",
        "triton_http_port": HTTP,
        "triton_grpc_port": GRPC,
        "triton_metrics_port": METRICS,
        "layout_batch_size": options.batch,
        "layout_threads": options.threads,
        "drain_timeout": 5,
    }
    if options.size == "none":
        (folder / "boxes.json").write_text(json.dumps([[22, 0.9, 0.1, 0.1, 0.9, 0.2, n] for n in range(60)]))
        values |= {"layout_backend": "fixed", "layout_fixed_file": folder / "boxes.json"}
    else:
        values |= {"layout_backend": "transformers", "layout_model_dir": folder / "checkpoint"}
        values |= {"layout_compile": mode == "compiled"}
        if options.cache:
            values |= {"layout_compile_cache": options.cache}
    environment = os.environ | {f"HPS_{name.upper()}": str(value) for name, value in values.items()}
    return environment | {"BENCHMARK_REGIONS": str(options.regions), "BENCHMARK_ROOT": str(ROOT)}


def _wait_until_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while b"Triton ready" not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"Triton did not start:\n{log.read_text(errors='replace')[-6000:]}")
        time.sleep(0.2)


def _load(page: str, calls: int, options: argparse.Namespace) -> dict[str, Any]:
    pages_before, batches_before = _counters()
    body = {"calls": calls, "in_flight": options.in_flight, "page": [int(side) for side in page.split("x")]}
    values = np.array([[json.dumps(body).encode()]], np.object_)
    tensor = grpcclient.InferInput("input", [1, 1], "BYTES")
    tensor.set_data_from_numpy(values)
    with grpcclient.InferenceServerClient(f"127.0.0.1:{GRPC}") as client:
        answer = client.infer("layout-load", [tensor], client_timeout=START_S).as_numpy("output")
    envelope = json.loads(answer[0, 0])
    if envelope["errorCode"]:
        sys.exit(f"the run failed: {envelope['errorMsg']}")
    result = envelope["result"]
    pages, batches = _counters()
    waits = result["waits"]
    return {
        "page": page,
        "in_flight": options.in_flight,
        "calls": calls,
        "pages_per_s": round(calls / result["seconds"], 1),
        "mean_batch": round((pages - pages_before) / max(1, batches - batches_before), 2),
        "wait_ms_p50": round(waits[len(waits) // 2] * 1000, 1),
        "wait_ms_p95": round(waits[int(len(waits) * 0.95)] * 1000, 1),
        "rows_per_page": round(result["regions"] / calls, 1),
    }


def _counters() -> tuple[float, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{METRICS}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    names = ("hps_layout_pages_total", "hps_layout_batches_total")
    found = [re.search(rf"^{name}(?:{{.*}})? (\S+)$", text, re.M) for name in names]
    pages, batches = (float(match[1]) if match else 0.0 for match in found)
    return pages, batches


def _print(row: dict[str, Any]) -> None:
    print(" ".join(f"{name}={value}" for name, value in row.items()), flush=True)


if __name__ == "__main__":
    sys.exit(main())
