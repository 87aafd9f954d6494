"""One truth for settings: src/hps/settings.py and compose_settings.py. What users read and what Compose does follow."""

import re
from pathlib import Path

import pytest

from hps import settings_reference
from hps.compose_settings import COMPOSE_ONLY, FIXED_IN_CONTAINERS
from hps.settings import OFFICIAL_WITHOUT_EFFECT, Settings, load, variable

ROOT = Path(__file__).parents[2]
COMPOSE_FILES = sorted(ROOT.glob("compose*.yaml"))
RELEASE = "${HPS_PIPELINE_NAME:-PaddleOCR-VL-1.6}"
# Where the default follows from others, or the file exists to say something else.
DERIVED = {"HPS_PADDLEX_IMAGE"}
OF_CPU = {"HPS_VLM_MODEL_NAME", "HPS_PIPELINE_CONFIG", "HPS_VLM_MAX_CONCURRENCY", "HPS_LAYOUT_IN_FLIGHT"}
# Set by a Compose file for a container that is not ours.
INNER = {"HPS_TLS_CERTIFICATE", "HPS_TLS_HTTP_PORT", "HPS_TLS_HTTPS_PORT"}
# Turned on by the Compose file that needs it.
ELSEWHERE = {
    "compose.cpu.yaml": OF_CPU,
    "compose.cache.yaml": {"HPS_CACHE_URL"},
    "compose.tls.yaml": {"HPS_STOP_DELAY"},
}

KNOWN = {variable(name): name for name in settings_reference.fields()}


def code_of(file: Path) -> str:
    lines = file.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


def references(file: Path) -> list[tuple[str, str | None]]:
    """(variable, default written beside it) of each ${…}."""
    text = code_of(file).replace(RELEASE, "RELEASE").replace("${HPS_PADDLEX_VERSION:-3.6}", "VERSION")
    found = re.findall(r"\$\{(HPS_\w+)(?::-([^{}]*))?[^{}]*\}", text)
    return [(name, default or None) for name, default in found]


def test_files_that_users_read_are_as_make_settings_writes_them() -> None:
    stale = [
        str(file.relative_to(ROOT))
        for file, text in settings_reference.written(ROOT).items()
        if file.read_text(encoding="utf-8") != text
    ]
    assert stale == [], "run `make settings`"


@pytest.mark.parametrize("file", COMPOSE_FILES, ids=lambda file: file.name)
def test_compose_files_know_no_other_settings_and_no_other_defaults(file: Path) -> None:
    named = set(re.findall(r"\bHPS_[A-Z0-9_]+\b", code_of(file)))
    assert named - KNOWN.keys() - INNER == set()
    for name, default in references(file):
        excused = DERIVED | ELSEWHERE.get(file.name, set())
        if default is not None and name not in excused:
            assert default == settings_reference.default(KNOWN[name]), name


def test_every_setting_of_the_kit_is_used_by_it() -> None:
    """Documented and passed on by nobody is worse than absent."""
    sources = [*COMPOSE_FILES, ROOT / "prepare.sh", *(ROOT / "src" / "hps" / "prepare").glob("*.py")]
    text = "\n".join(code_of(file) for file in sources)
    unused = {name for name in COMPOSE_ONLY if variable(name) not in text and f"compose.{name}" not in text}
    # Read by the Compose command line through COMPOSE_FILE in .env.
    assert unused - {"runtime", "device_ids"} == set()


def test_every_setting_of_a_container_reaches_it() -> None:
    block = code_of(ROOT / "compose.yaml").partition("x-service")[0]
    passed = set(re.findall(r"^  (HPS_\w+):$", block, re.MULTILINE))
    assert passed == {variable(name) for name in Settings.model_fields.keys() - FIXED_IN_CONTAINERS}


def test_the_example_is_a_valid_env_with_every_line_in_use(tmp_path: Path) -> None:
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    load({}, env_file=ROOT / ".env.example")
    lines = re.findall(r"^#?(HPS_\w+)=(.*)$", example, re.MULTILINE)
    assert len({name for name, _ in lines}) == len(lines)
    assert {name for name, _ in lines} <= KNOWN.keys() - (OFFICIAL_WITHOUT_EFFECT.keys() - KNOWN.keys())
    uncommented = tmp_path / ".env"
    uncommented.write_text("\n".join(f"{name}={value}" for name, value in lines), encoding="utf-8")
    load({}, env_file=uncommented)


def test_the_chinese_readme_has_the_same_settings() -> None:
    def rows(file: str) -> list[tuple[str, str]]:
        text = (ROOT / file).read_text(encoding="utf-8")
        table = text[text.index(f"| `{variable(settings_reference.COMMON[0])}` |") :]
        return re.findall(r"^\| `(HPS_\w+)` \| ([^|]+) \|", table, re.MULTILINE)

    assert rows("README.md") == rows("README.zh-CN.md") != []
