"""Docker's command line, as far as `hps prepare` uses it: images are entries of a file. Run as a program.

State is in FAKE_DOCKER; pulling asks FAKE_REGISTRY for real, so that it fails where there is no network.
"""

import hashlib
import json
import os
import re
import sys
from pathlib import Path

STATE = Path(os.environ["FAKE_DOCKER"])
BUILT = {
    "paddleocr-vl-api": ("HPS_GATEWAY_IMAGE", "HPS_PYTHON_IMAGE"),
    "paddleocr-vl-pipeline": ("HPS_PIPELINE_IMAGE", "HPS_TRITON_IMAGE"),
    "paddleocr-vlm-server": ("HPS_VLM_SERVER_IMAGE", "HPS_VLM_IMAGE"),
}


def images() -> dict[str, dict[str, str]]:
    file = STATE / "images.json"
    return json.loads(file.read_text()) if file.exists() else {}


def keep(**new: dict[str, str]) -> None:
    (STATE / "images.json").write_text(json.dumps(images() | new))


def ask_registry() -> None:
    import urllib.request  # it takes longer than all the rest

    urllib.request.urlopen(os.environ["FAKE_REGISTRY"], timeout=5)


def pull(name: str) -> None:
    ask_registry()
    plain, _, digest = name.partition("@")
    digest = digest or "sha256:" + hashlib.sha256(plain.encode()).hexdigest()
    repository = re.sub(r":[^/:]*$", "", plain)
    image = {"id": "sha256:" + hashlib.sha256(digest.encode()).hexdigest(), "digest": f"{repository}@{digest}"}
    keep(**{plain: image, name: image})


def build(service: str, options: list[str]) -> None:
    ask_registry()
    variable, base = BUILT[service]
    if any("cpu" in option for option in options):
        variable, base = variable.replace("PIPELINE", "PIPELINE_CPU"), "HPS_PYTHON_IMAGE"
    content = os.environ.get("FAKE_BUILD", "") + service + os.environ[base]
    keep(**{os.environ[variable]: {"id": "sha256:" + hashlib.sha256(content.encode()).hexdigest(), "digest": ""}})


def main(arguments: list[str]) -> int:
    with (STATE / "calls").open("a") as log:
        log.write(" ".join(arguments) + "\n")
    match arguments:
        case ["compose", "version", *_]:
            print(os.environ.get("FAKE_COMPOSE_VERSION", "2.26.1-4"))
        case ["info", *_]:
            host = {"ServerVersion": "26.1.5", "Architecture": "x86_64", "NCPU": 16, "MemTotal": 128 * 2**30}
            print(
                json.dumps(host | {"DockerRootDir": str(STATE)} | json.loads(os.environ.get("FAKE_DOCKER_INFO", "{}")))
            )
        case ["image", "inspect", "--format", wanted, name]:
            if name not in images():
                print(f"Error: No such image: {name}", file=sys.stderr)
                return 1
            image = images()[name]
            digests = json.dumps([image["digest"]] if image["digest"] else [])
            size = os.environ.get("FAKE_IMAGE_SIZE", "1000")
            print({"{{.Id}}": image["id"], "{{json .RepoDigests}}": digests, "{{.Size}}": size}[wanted])
        case ["pull", name]:
            pull(name)
        case ["tag", name, other]:
            keep(**{other: images()[name]})
        case ["compose", *options] if "build" in options:
            for service in options[options.index("build") + 1 :]:
                build(service, options)
        case ["run", "--rm", "--gpus=all", _, "--entrypoint=nvidia-smi", _, _, _]:
            if "FAKE_GPUS" not in os.environ:
                print('docker: could not select device driver "" with capabilities: [[gpu]].', file=sys.stderr)
                return 125
            print(os.environ["FAKE_GPUS"])
        case ["build", _, tag, _]:
            keep(**{tag.removeprefix("--tag="): {"id": "sha256:" + "0" * 64, "digest": ""}})
        case ["image", "save", "--output", file, *names]:
            Path(file).write_text(json.dumps({name: images()[name] for name in names}))
        case ["image", "load", "--quiet"]:
            keep(**json.loads(sys.stdin.read()))
        case _:
            print(f"fake docker does not know: {arguments}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
