"""Becomes supervisord over the servers that the environment asks for. `--print` only prints the command lines."""

import os
import sys
import tempfile
from pathlib import Path

from . import command, environment, health, supervision


def main() -> int:
    try:
        plan = environment.read()
    except environment.Unusable as error:
        print(f"vlm: {error}", file=sys.stderr)
        return 2
    for port in plan.ports:
        print(f"vlm: {command.shown(command.serve(plan.server, port))}", flush=True)
    if sys.argv[1:] == ["--print"]:
        return 0
    folder = Path(tempfile.gettempdir())
    for directory in (supervision.MPS_PIPE, supervision.MPS_LOG) if plan.mps else ():
        (folder / directory).mkdir(mode=0o700, exist_ok=True)
    (folder / health.ALL_WERE_WELL).unlink(missing_ok=True)  # of an earlier start
    file = folder / "supervisord.conf"
    file.touch(mode=0o600)  # it may hold the key
    file.write_text(supervision.configuration(plan, folder), encoding="utf-8")
    base = dict(os.environ)
    if not os.access(base.get("HOME", ""), os.W_OK):
        base.pop("HOME", None)  # Docker says / for a user without a name; caches are to be written below it
    os.execve(
        sys.executable,
        [sys.executable, "-m", "supervisor.supervisord", "--configuration", str(file)],
        supervision.environment(plan, folder, base),
    )


if __name__ == "__main__":
    sys.exit(main())
