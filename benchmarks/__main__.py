"""The runner: `python -m benchmarks [NAME…] [--json FILE]`. Exit code 1 when a figure misses its limit."""

import argparse
import importlib
import json
import os
import platform
import sys
import textwrap
from pathlib import Path
from types import ModuleType

NAMES = ("throughput", "throughput_short", "overhead", "burst", "long_document", "postprocess", "gateway_throughput")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(NAMES)} (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    wanted = parser.parse_args()
    if unknown := set(wanted.names) - set(NAMES):
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
    if wanted.json:
        machine = {"cores": os.cpu_count(), "python": platform.python_version(), "processor": platform.machine()}
        wanted.json.write_text(json.dumps({"machine": machine, "figures": figures}, indent=1) + "\n")
    return 1 if misses else 0


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
