"""Known weaknesses of what the lock files pin, by pip-audit: `make audit`.

    python requirements/audit.py [LOCK …]

Exit code 1 when there are some. Needs PyPI's database: where it cannot be reached, or knows nothing of these packages
(a mirror), this says so and exits with 0, unless AUDIT=strict.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LOCKS = ("gateway", "pipeline", "embedded", "cli", "docx", "storage", "cache", "bench", "dev", "torch")
ENVIRONMENT = HERE.parent / ".venv-audit"
TIMEOUT_S = 600


class NotChecked(Exception):
    """Nothing can be said; the message says why."""


def tool() -> Path:
    """pip-audit, in an environment of its own: what it needs must not mix with what it looks at."""
    program = ENVIRONMENT / "bin" / "pip-audit"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        pip = [str(ENVIRONMENT / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        if subprocess.run([*pip, "pip-audit>=2.9,<3"]).returncode:
            raise NotChecked("pip-audit cannot be had")
    return program


def dependencies(program: Path, locks: list[Path]) -> list[dict[str, object]]:
    """As pip-audit's JSON has them."""
    command = [str(program), "--disable-pip", "--require-hashes", "--progress-spinner=off", "--format=json"]
    command += [word for lock in locks for word in ("--requirement", str(lock))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    try:
        found: list[dict[str, object]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        raise NotChecked(f"pip-audit failed: {done.stderr.strip()[-500:]}") from None
    return found


def main(names: list[str]) -> int:
    locks = [Path(name) for name in names] or [HERE / f"{name}.txt" for name in LOCKS]
    try:
        found = dependencies(tool(), locks)
        unknown = [entry for entry in found if "skip_reason" in entry]
        if len(unknown) == len(found):
            raise NotChecked(f"the database knows none of {len(found)} packages")
    except (NotChecked, subprocess.TimeoutExpired) as error:
        print(f"audit: nothing was checked: {error}", file=sys.stderr)
        return 1 if os.environ.get("AUDIT") == "strict" else 0
    weak = [entry for entry in found if entry.get("vulns")]
    for entry in weak:
        for weakness in entry["vulns"]:  # type: ignore[attr-defined]
            fixed = ", ".join(weakness["fix_versions"]) or "none"
            print(f"{entry['name']} {entry['version']}: {weakness['id']}, mended in: {fixed}")
    for entry in unknown:
        print(f"not checked: {entry['name']}: {entry['skip_reason']}", file=sys.stderr)
    print(f"audit: {len(found) - len(unknown)} packages checked, {len(weak)} with known weaknesses", file=sys.stderr)
    return 1 if weak else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
