"""The configuration of supervisord, which keeps the servers running. Pure."""

import configparser
import io
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from . import command
from .environment import Plan

SOCKET = "supervisor.sock"
MPS_PIPE, MPS_LOG = "mps", "mps-log"
_STOP_S = 30  # a server ends within 3 s when it is idle
_FOR_EVER = 1_000_000


def name(port: int) -> str:
    """Of the program that listens there."""
    return f"vllm-{port}"


def configuration(plan: Plan, folder: Path) -> str:
    """supervisord.conf: the servers, MPS before them if it is wanted, and the watch over them. `folder` is writable."""
    config = configparser.RawConfigParser()
    config["supervisord"] = {
        "nodaemon": "true",
        "logfile": "/dev/null",
        "logfile_maxbytes": "0",
        "pidfile": f"{folder}/supervisord.pid",
        "childlogdir": str(folder),
    }
    config["unix_http_server"] = {"file": f"{folder}/{SOCKET}", "chmod": "0700"}
    config["rpcinterface:supervisor"] = {
        "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"
    }
    if plan.mps:
        config["program:mps"] = _program(["nvidia-cuda-mps-control", "-f"], priority=1)
    for port in plan.ports:
        config[f"program:{name(port)}"] = _program(command.serve(plan.server, port), priority=10)
    watch = [sys.executable, "-m", f"{__package__}.watch", str(folder), str(plan.hang_s), *map(str, plan.ports)]
    config["program:watch"] = _program(watch, priority=20)
    written = io.StringIO()
    config.write(written)
    return written.getvalue()


def environment(plan: Plan, folder: Path, base: Mapping[str, str]) -> dict[str, str]:
    """Of supervisord and all that it starts: offline, quiet, with every cache in a place that can be written to."""
    ours = {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "TOKENIZERS_PARALLELISM": "false",
        # Torch asks for a user's name, and there need be none for our number.
        "USER": "hps",
        "HOME": str(folder),
    }
    if plan.mps:
        ours |= {
            "CUDA_MPS_PIPE_DIRECTORY": str(folder / MPS_PIPE),
            "CUDA_MPS_LOG_DIRECTORY": str(folder / MPS_LOG),
        }
    return {**ours, **base}


def _program(arguments: list[str], priority: int) -> dict[str, str]:
    return {
        # Percent signs are supervisord's own.
        "command": shlex.join(arguments).replace("%", "%%"),
        "priority": str(priority),
        "autorestart": "true",
        "startsecs": "5",
        "startretries": str(_FOR_EVER),
        "stopwaitsecs": str(_STOP_S),
        "stopasgroup": "true",
        "killasgroup": "true",
        "stdout_logfile": "/dev/fd/1",
        "stdout_logfile_maxbytes": "0",
        "redirect_stderr": "true",
    }
