import re
from pathlib import Path

from hps.prepare import bundle

ROOT = Path(__file__).parents[3]


def test_the_bundle_has_all_that_the_containers_are_made_of() -> None:
    packed = {name.removeprefix(f"{bundle.KIT}/") for name, _ in bundle.kit_members(ROOT)}
    named = set()
    for file in [*ROOT.glob("compose*.yaml"), *ROOT.glob("*.Dockerfile"), *ROOT.glob("*/Dockerfile")]:
        text = file.read_text(encoding="utf-8")
        named |= {match.rstrip("/") for match in re.findall(r"^ +- \./([\w./-]+):", text, re.MULTILINE)}
        for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
            named |= {word.rstrip("/") for word in line.split()}
    missing = {name for name in named if not any(each == name or each.startswith(f"{name}/") for each in packed)}
    assert named >= {"src", "gateway", "model_repo", "vlm/entrypoint.sh"}
    assert missing == set()
