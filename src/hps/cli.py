"""The command `hps`. A subcommand imports what it needs itself, so that `hps parse` needs only the client."""

import argparse
import asyncio
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hps.bench import options as bench_options
from hps.settings import SettingsError, load
from hps.version import VERSION

DEFAULT_URL = "http://127.0.0.1:8080"


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except SettingsError as error:
        print(f"hps: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # who read our output has seen enough; nothing may be written to it at exit either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hps", description="High-performance serving of PaddleOCR-VL.")
    parser.add_argument("--version", action="version", version=f"hps {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    up = commands.add_parser("up", help="run the whole service on this machine's CPU (embedded recogniser)")
    up.add_argument("--port", type=int, help="port of the gateway (HPS_PORT, 8080)")
    up.add_argument("--quality", choices=("fast", "better"), help="size of the recogniser (HPS_EMBEDDED_QUALITY, fast)")
    up.set_defaults(run=_up)

    triton = commands.add_parser(
        "triton", help="run Triton with our models, watched and restarted (PID 1 of its container)"
    )
    triton.set_defaults(run=_triton)

    parse = commands.add_parser("parse", help="parse documents through a running service")
    parse.add_argument("paths", nargs="+", type=Path, metavar="FILE|FOLDER")
    parse.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="write .md, images and .json there, not to stdout"
    )
    parse.add_argument("--url", default=DEFAULT_URL, help=f"address of the service ({DEFAULT_URL})")
    parse.add_argument("--jobs", type=int, default=4, help="documents at once (4)")
    parse.add_argument("--orientation", action="store_true", help="turn pages upright (useDocOrientationClassify)")
    parse.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="NAME=JSON",
        help="any field of the request, e.g. --option useChartRecognition=true",
    )
    parse.set_defaults(run=_parse)

    bench_options.add_bench(commands)
    bench_options.add_tune(commands)

    prepare = commands.add_parser("prepare", help="make this host ready to start the kit (./prepare.sh runs it)")
    prepare.add_argument("--bundle", type=Path, metavar="FILE", help="and pack all of it for a host without internet")
    prepare.add_argument("--from-bundle", type=Path, metavar="FILE", help="install such a file, without any network")
    prepare.set_defaults(run=_prepare)

    keys = commands.add_parser("keys", help="API keys of the gateway (HPS_API_KEYS_FILE)")
    keys.add_argument("action", choices=("add", "remove", "list"))
    keys.add_argument("name", nargs="?", help="whose key: it appears in the log, the key never")
    keys.add_argument("--file", type=Path, help="file of names and hashes (HPS_API_KEYS_FILE)")
    keys.set_defaults(run=_keys)

    conformance = commands.add_parser("conformance", help="run golden cases through the implementation")
    conformance.add_argument("directory", type=Path, metavar="DIR")
    conformance.add_argument("--group", help="only this group")
    conformance.set_defaults(run=_conformance)
    return parser


def configure_logging(level: str) -> None:
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    # One line a VLM request would drown everything else.
    logging.getLogger("httpx").setLevel(logging.WARNING)


def _up(arguments: argparse.Namespace) -> int:
    from hps.embedded import supervisor

    overrides: dict[str, Any] = {}
    if arguments.port is not None:
        overrides["port"] = arguments.port
    if arguments.quality is not None:
        overrides["embedded_quality"] = arguments.quality
    settings = load(env_file=Path(".env"), **overrides)
    configure_logging(settings.log_level)
    return supervisor.main(settings)


def _triton(arguments: argparse.Namespace) -> int:
    from hps import config
    from hps.triton import launcher

    settings = load()
    configure_logging(settings.log_level)
    return launcher.main(config.effective(settings, report=True)[1])


def _parse(arguments: argparse.Namespace) -> int:
    from hps import client

    options: dict[str, Any] = {"useDocOrientationClassify": True} if arguments.orientation else {}
    for option in arguments.option:
        name, _, value = option.partition("=")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    try:
        sources = client.find_sources(arguments.paths, arguments.output)
    except FileNotFoundError as error:
        print(f"hps: {error}", file=sys.stderr)
        return 2
    if not sources:
        print("hps: no documents found", file=sys.stderr)
        return 2
    parsing = client.parse_all(arguments.url, sources, arguments.output, options, max(1, arguments.jobs))
    try:
        report = asyncio.run(parsing)
    except client.ServiceAway as error:
        print(f"hps: {error}", file=sys.stderr)
        return 1
    for path, problem in report.failures.items():
        print(f"failed: {path}: {problem}", file=sys.stderr)
    if arguments.output is not None:
        print(f"{report.parsed} parsed, {report.skipped} done before, {len(report.failures)} failed", file=sys.stderr)
    return 1 if report.failures else 0


def _prepare(arguments: argparse.Namespace) -> int:
    from hps.prepare import command

    return command.run(arguments)


def _keys(arguments: argparse.Namespace) -> int:
    from hps import api_keys

    file = arguments.file or load(env_file=Path(".env")).api_keys_file
    if file is None:
        print("hps: which file? Give --file or set HPS_API_KEYS_FILE", file=sys.stderr)
        return 2
    if (arguments.action == "list") == (arguments.name is not None):
        print("hps: keys add NAME, keys remove NAME, keys list", file=sys.stderr)
        return 2
    if arguments.action == "add":
        print(api_keys.add(file, arguments.name))
        print("This is the only time that the key is shown.", file=sys.stderr)
    elif arguments.action == "remove":
        api_keys.remove(file, arguments.name)
    else:
        print("\n".join(api_keys.names(file)))
    return 0


def _conformance(arguments: argparse.Namespace) -> int:
    from hps.conformance import runner

    return runner.main([str(arguments.directory), *(["--group", arguments.group] if arguments.group else [])])
