"""The options of `hps bench` and `hps tune`. What these do needs the extras `pipeline` and `bench`, loaded then."""

import argparse
from pathlib import Path
from typing import Any

PADDLEX_PYTHON = Path(".venv-paddlex/bin/python")


def add_bench(commands: Any) -> None:
    """`hps bench` as a subcommand."""
    bench = commands.add_parser(
        "bench",
        help="measure a running service, or one that is started in front of running VLM servers",
        description="Without --url, gateway and pipeline are started on this machine in front of the VLM servers, with "
        "the boxes of the built-in page mix in the place of a layout model.",
    )
    _add_target(bench)
    bench.add_argument("--concurrency", default="1,16,64,192", help="requests in flight, one run each (%(default)s)")
    bench.add_argument("--rate", default="", help="pages/s of open-loop runs, e.g. 2,4")
    bench.add_argument("--rate-seconds", type=float, default=60, help="length of an open-loop run (60)")
    bench.add_argument(
        "--direct",
        default="64,128,256,512",
        help="blocks in flight at which the VLM servers are tried by themselves; empty: not at all (%(default)s)",
    )
    bench.add_argument("--latency-pages", type=int, default=8, help="pages sent one by one, both ways (8; 0: none)")
    bench.add_argument("--peer", choices=["paddlex"], help="also measure PaddleX's own pipeline (make setup-paddlex)")
    bench.add_argument("--paddlex-python", type=Path, default=PADDLEX_PYTHON, help="its environment (%(default)s)")
    bench.add_argument("--paddlex-concurrency", default="1,64", help="requests in flight there (%(default)s)")
    bench.add_argument("--paddlex-requests", type=int, default=32, help="of a run there at least (32)")
    bench.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    bench.add_argument("--plot", type=Path, metavar="FILE", help="draw throughput and p95 there (.png or .svg)")
    bench.set_defaults(run=_bench)


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--vlm", required=True, metavar="URL[,URL]", help="the VLM servers (replicas), without /v1")
    parser.add_argument("--model", help="name that they serve (the release's)")
    parser.add_argument("--url", help="a running service in front of them")
    parser.add_argument("--metrics", default="", metavar="URL[,URL]", help="/metrics of its gateway and its pipeline")
    parser.add_argument("--api-key", help="key for the service")
    parser.add_argument("--vlm-api-key", help="key for the VLM servers")
    parser.add_argument(
        "--set", action="append", default=[], metavar="HPS_NAME=VALUE", help="a setting of the service started here"
    )
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="documents (default: the built-in page mix)")
    parser.add_argument("--mix-pages", type=int, default=64, help="different pages of the mix (64)")
    parser.add_argument("--requests", type=int, default=64, help="of a run at least, and twice those in flight (64)")
    parser.add_argument("--pdf-pages", type=int, metavar="N", help="send the mix as PDFs of N pages, not as images")
    parser.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=JSON",
        help="any field of the request, e.g. visualize=true",
    )


def add_tune(commands: Any) -> None:
    """`hps tune` as a subcommand."""
    tune = commands.add_parser(
        "tune",
        help="find the settings that suit this machine and these pages",
        description="Tries coordinators and blocks in flight, and VLM replicas and API processes where it may start "
        "them: each upwards while it helps. Without --restart, gateway and pipeline are started here for every trial, "
        "with the boxes of the built-in page mix in the place of a layout model. Prints lines for .env.",
    )
    _add_target(tune)
    tune.add_argument("--in-flight", type=int, default=192, help="requests in flight (192)")
    tune.add_argument(
        "--restart", metavar="COMMAND", help="starts the service of --url anew, with the settings in its environment"
    )
    tune.add_argument(
        "--vlm-command", metavar="COMMAND", help="runs the VLM servers of --vlm, told by HPS_VLM_REPLICAS and so on"
    )
    tune.add_argument("--env", type=Path, metavar="FILE", help="write the lines there too")
    tune.set_defaults(run=_tune)


def _bench(arguments: argparse.Namespace) -> int:
    from hps.bench import command

    return command.run_bench(arguments)


def _tune(arguments: argparse.Namespace) -> int:
    from hps.bench import command

    return command.run_tune(arguments)
