"""Pages a second of the whole chain on one GPU: gateway, Triton with its layout model, and vLLM servers.

    python3 -m benchmarks.gpu.whole_chain --checkpoint CKPT --site SITE --hps TARGET --out OUT 4+mps
    ... --runs plain prepared default nolayout --paddlex PYTHON 4+mps

Real are Triton, the arithmetic of PP-DocLayoutV3, vLLM 0.26.0 with the packed encoder, and ours. Stood in for: weights
(random), the boxes that the layout model finds and the length of the VLM's answers (both from the page mix of `hps
bench`, which also gives the load and the report). SITE: see vlm_replicas.py. TARGET: where unpack.sh laid out all
parts. Each run starts gateway and pipeline anew in front of the same VLM servers. PYTHON: of an environment as
requirements/paddlex.txt lists it, TARGET/paddlex/python; then its pipeline follows, in front of the official kit's one
server.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil

from benchmarks.gpu.vlm_replicas import FIRST_PORT, NAME, ROOT, Arrangement, install_plugin, running
from hps.bench import page_mix
from hps.prepare import sizing
from hps.vlm_server import environment

# Of every run. The rest of the page mix is in what a run is told: its crops, its boxes, its tokens.
SETTINGS = {
    "HPS_LAYOUT_BACKEND": "transformers",
    "HPS_VLM_GUARD": "off",  # random weights repeat themselves; the answers have their length from the mix
}
# As many requests in work as keep the VLM servers full, and threads to spare.
TUNED = {
    "HPS_MAX_CONCURRENT_INFERENCE_REQUESTS": "1024",
    "HPS_MAX_QUEUED_REQUESTS": "1024",
    "HPS_MAX_PIPELINE_REQUESTS": "512",
    "HPS_COORDINATORS": "2",
    "HPS_DECODE_WORKERS": "2",
    "HPS_LAYOUT_THREADS": "4",
    "HPS_VLM_MAX_CONCURRENCY": "512",
}
PAGE_TOKENS = 1031  # mean of a page of the mix; without layout a page is one block
# Name → options of the requests. `prepared` has the settings that prepare.sh writes for this machine, the others TUNED.
RUNS: dict[str, dict[str, object]] = {
    "plain": {"visualize": False},
    "prepared": {"visualize": False},
    "default": {},
    "nolayout": {"visualize": False, "useLayoutDetection": False, "maxNewTokens": PAGE_TOKENS},
}


def main() -> int:
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    install_plugin(Path(options.site))
    with tempfile.TemporaryDirectory(prefix="hps-chain-") as name:
        folder = Path(name)
        table = folder / "mix.json"
        page_mix.write_table(page_mix.pages(options.mix_pages), table)
        weights = _in_ours(options, "benchmarks.gpu.layout_triton", *_checkpoint(folder))
        with running(options.arrangement, options, tokens=table) as start_s:
            print(json.dumps({"arrangement": options.arrangement.label, "start_s": round(start_s)}), flush=True)
            if weights.wait() != 0:
                raise RuntimeError("no layout checkpoint")
            codes = [_bench(run, number == 0, folder, options) for number, run in enumerate(options.runs)]
        if options.paddlex:
            with running(Arrangement("official"), options, tokens=table):
                codes.append(_bench_paddlex(options))
    return max(codes)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arrangement", type=Arrangement)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--site", required=True)
    parser.add_argument("--hps", type=Path, required=True, metavar="TARGET")
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--cache", type=Path, default=Path("/tmp/vllm-cache"))
    parser.add_argument("--mix-pages", type=int, default=64)
    parser.add_argument("--runs", nargs="+", choices=list(RUNS), default=["plain"])
    parser.add_argument("--concurrency", default="64,192")
    parser.add_argument("--direct", default="256,512", help="blocks in flight at the VLM servers alone")
    parser.add_argument("--paddlex", metavar="PYTHON", help="measure PaddleX's pipeline as the official kit has it")
    parser.add_argument(
        "--set", action="append", default=[], metavar="HPS_NAME=VALUE", help="over those in this script"
    )
    return parser.parse_args()


def _checkpoint(folder: Path) -> list[str]:
    return ["--child", "checkpoint", "--size", "full", "--folder", str(folder / "layout")]


def _bench(run: str, with_direct: bool, folder: Path, options: argparse.Namespace) -> int:
    """`hps bench`; its exit code. The VLM servers by themselves are measured once."""
    servers = options.arrangement.servers
    urls = [f"http://127.0.0.1:{port}" for port in range(FIRST_PORT, FIRST_PORT + servers)]
    chosen = _prepared(options.arrangement) if run == "prepared" else TUNED
    settings = (
        SETTINGS
        | chosen
        | {
            "HPS_MODEL_REPOSITORY": str(_repository(folder)),
            "HPS_LAYOUT_MODEL_DIR": str(folder / "layout"),
            "HPS_VLM_REPLICAS": str(servers),
        }
    )
    settings |= dict(pair.split("=", 1) for pair in options.set)
    arguments = ["--vlm", ",".join(urls), "--model", NAME, "--mix-pages", str(options.mix_pages)]
    arguments += ["--concurrency", options.concurrency, "--direct", options.direct if with_direct else ""]
    arguments += ["--latency-pages", "8" if with_direct else "0"]
    arguments += ["--json", str(options.out / f"chain-{options.arrangement.label}-{run}.json")]
    for name, value in settings.items():
        arguments += ["--set", f"{name}={value}"]
    for name, wanted in RUNS[run].items():
        arguments += ["--option", f"{name}={json.dumps(wanted)}"]
    print(json.dumps({"run": run, "options": RUNS[run], "settings": settings}), flush=True)
    return _in_ours(options, "hps", "bench", *arguments).wait()


def _bench_paddlex(options: argparse.Namespace) -> int:
    arguments = ["--vlm", f"http://127.0.0.1:{FIRST_PORT}", "--model", NAME, "--mix-pages", str(options.mix_pages)]
    arguments += ["--concurrency", "", "--direct", "", "--latency-pages", "0"]
    arguments += ["--peer", "paddlex", "--paddlex-python", options.paddlex, "--paddlex-concurrency", "1,32"]
    arguments += ["--paddlex-requests", "64", "--json", str(options.out / "chain-official-paddlex.json")]
    return _in_ours(options, "hps", "bench", *arguments).wait()


def _prepared(arrangement: Arrangement) -> dict[str, str]:
    """What prepare.sh writes for this machine."""
    memory_gib = environment.gpu_memory_gib()
    if memory_gib is None:
        raise RuntimeError("no GPU")
    host_gib = psutil.virtual_memory().total / 2**30
    found = sizing.limits(memory_gib, 1, os.cpu_count() or 1, host_gib, mps=arrangement.has_mps).variables()
    return {name: value for name, value in found.items() if name != "HPS_PIPELINE_MEMORY"}  # of a container


def _repository(folder: Path) -> Path:
    """Triton's models as shipped, with the benchmark's layout model in the place of ours."""
    repository = folder / "models"
    if not repository.exists():
        shutil.copytree(ROOT / "model_repo", repository, ignore=shutil.ignore_patterns("__pycache__"))
        ours = ROOT / "benchmarks" / "gpu" / "models" / "mix-layout" / "model.py"
        shutil.copy(ours, repository / "layout-detection" / "1" / "model.py")
    return repository


def _in_ours(options: argparse.Namespace, module: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A module in the Python that unpack.sh laid out, on stdout and stderr of this process."""
    command: Sequence[str] = [str(ROOT / "benchmarks" / "gpu" / "run.sh"), str(options.hps), module, *arguments]
    return subprocess.Popen(command, env=os.environ | {"BENCHMARK_ROOT": str(ROOT), "PYTHONPATH": str(ROOT / "src")})


if __name__ == "__main__":
    raise SystemExit(main())
