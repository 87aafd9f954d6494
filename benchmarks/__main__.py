"""The runner: `python -m benchmarks [NAME…]`. Exit code 1 when a figure misses its limit."""

import argparse
import importlib
import json
import os
import platform
import sys
import textwrap
from pathlib import Path
from types import ModuleType

from benchmarks import results

NAMES = (
    "throughput",
    "cpu_growth",
    "fairness",
    "overload",
    "overhead",
    "burst",
    "long_document",
    "postprocess",
    "gateway_throughput",
)
SHORT = ("throughput_short",)  # when asked for only: a part of another one


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = ", ".join((*NAMES, *SHORT))
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"any of {names} (default: all but {', '.join(SHORT)})"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--record", action="store_true", help=f"add what is worth comparing to {results.FILE.name}")
    parser.add_argument("--compare", action="store_true", help="show the change against the last record")
    wanted = parser.parse_args()
    if unknown := set(wanted.names) - {*NAMES, *SHORT}:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    figures: dict[str, dict[str, float]] = {}
    misses = 0
    for name in wanted.names or NAMES:
        module = importlib.import_module(f"benchmarks.{name}")
        before = os.getloadavg()[0]
        print(f"== {name} (load of the machine before: {before:.1f}, cores: {os.cpu_count()})", flush=True)
        print(textwrap.indent((module.__doc__ or "").strip(), "   "), flush=True)
        figures[name] = module.run()
        misses += _table(module, figures[name])
        if compared := {figure: figures[name][figure] for figure in getattr(module, "RECORDED", ())}:
            _keep(results.record(name, _machine(), compared), wanted)
    if wanted.json:
        wanted.json.write_text(json.dumps({"machine": _machine(), "figures": figures}, indent=1) + "\n")
    return 1 if misses else 0


def _machine() -> str:
    return f"{os.cpu_count()} cores {platform.machine()}, Python {platform.python_version()}"


def _keep(record: results.Record, wanted: argparse.Namespace) -> None:
    if wanted.compare:
        print("\n".join(results.comparison(record, results.last(record.benchmark))), end="\n\n", flush=True)
    if wanted.record:
        results.append(record)


def _table(module: ModuleType, figures: dict[str, float]) -> int:
    """Prints the figures; how many miss their limit."""
    misses = 0
    width = max(map(len, figures))
    for name, value in figures.items():
        limit, verdict = module.LIMITS.get(name), ""
        if limit is not None:
            at_least = name in getattr(module, "AT_LEAST", ())
            is_met = value >= limit if at_least else value <= limit
            misses += not is_met
            verdict = f"   {'≥' if at_least else '≤'} {limit:g}: {'met' if is_met else 'MISSED'}"
        print(f"   {name:<{width}} {value:10.2f}{verdict}")
    print(flush=True)
    return misses


if __name__ == "__main__":
    sys.exit(main())
