"""The long form: `python -m tests.fuzz --decoders 40000 --api 1000 --seed 1`; exit code 1 when something was found."""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence

from tests.fuzz import api, decoders
from tests.fuzz.mutations import Input

GROWTH = 0.05  # of memory, at most


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Hostile input by the thousand")
    parser.add_argument("--decoders", type=int, default=40_000, help="mutated files (40000)")
    parser.add_argument("--api", type=int, default=1_000, help="requests of each operation (1000)")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other inputs (1)")
    options = parser.parse_args(arguments)
    good = _decoders(options.decoders, options.seed) if options.decoders else True
    return 0 if (_api(options.api, options.seed) if options.api else True) and good else 1


def _decoders(count: int, seed: int) -> bool:
    started = time.monotonic()
    outcome = asyncio.run(decoders.run(count, seed))
    print(f"{outcome.inputs} mutated files in {time.monotonic() - started:.0f} s, seed {seed}")
    print(f"  decoded {outcome.decoded}, refused {outcome.refused.total()}; longest {outcome.longest_s:.1f} s")
    for message, times in outcome.refused.most_common(8):
        print(f"    {times:6} {message}")
    print(f"  ended a decoder {len(outcome.crashes)}{_named(outcome.crashes)}")
    print(f"  over their time {len(outcome.slow)}{_named(outcome.slow)}")
    print(f"  unexpected errors {len(outcome.unexpected)}, hung {len(outcome.hung)}{_named(outcome.hung)}")
    for given, error in outcome.unexpected[:5]:
        print(f"    input {given.number} from {given.seed}: {error[:300]}")
    curve = " ".join(str(size >> 20) for size in outcome.memory)
    print(f"  memory in MiB along the way: {curve} ({outcome.growth:+.1%})")
    return not outcome.unexpected and not outcome.hung and outcome.growth <= GROWTH


def _named(inputs: Sequence[Input]) -> str:
    return f" (inputs {', '.join(str(given.number) for given in inputs[:10])})" if inputs else ""


def _api(examples: int, seed: int) -> bool:
    started = time.monotonic()
    outcome = api.run(examples, seed)
    print(f"{outcome.cases} requests by schemathesis in {time.monotonic() - started:.0f} s, seed {seed}")
    before, after = outcome.memory
    print(f"  memory {before >> 20} MiB before, {after >> 20} MiB after ({outcome.growth:+.1%})")
    if not outcome.ok:
        print(outcome.output[-6000:], outcome.service_log[-3000:], sep="\n")
    return outcome.ok and outcome.growth <= GROWTH


if __name__ == "__main__":
    sys.exit(main())
