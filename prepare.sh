#!/usr/bin/env bash
# Makes this host ready: `hps prepare` (src/hps/prepare), which needs nothing here but Docker.
#   ./prepare.sh                        check the host, fetch the weights, build the images, write .env
#   ./prepare.sh --bundle FILE          and pack all of it for a host without internet
#   ./prepare.sh --from-bundle FILE     install such a file there: tar -xf FILE paddleocr-vl-hps first, for this kit
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

# An environment of `make setup` has everything.
if [[ -x .venv/bin/hps ]]; then exec .venv/bin/hps prepare "$@"; fi

fail() { echo "prepare.sh: $*" >&2; exit 1; }

# setting NAME: its value as exported, else as in .env.
setting() {
  local name=$1
  if [[ -n ${!name:-} ]]; then echo "${!name}"; elif [[ -f .env ]]; then sed -n "s/^$name=//p" .env | tail -n 1; fi
}

command -v docker >/dev/null || fail "Docker is not installed; needed: Docker 20.10 or newer with Compose 2.24.4 or newer"
docker version >/dev/null || fail "Docker does not answer (see above); is it running, and may you use it?"

version=$(sed -n 's/^VERSION = "\(.*\)"$/\1/p' src/hps/version.py)
image=paddleocr-vl-hps-prepare:$version
mounts=("$PWD")
previous=
for argument in "$@"; do
  file=${argument#--*bundle=}
  if [[ $previous == --bundle || $previous == --from-bundle || $argument == --*bundle=* ]]; then
    folder=$(cd "$(dirname "$file")" && pwd) || fail "there is no folder for $file"
    mounts+=("$folder")
    if [[ $previous == --from-bundle || $argument == --from-bundle=* ]]; then
      tar -xOf "$file" bundle/prepare.tar | docker image load --quiet >&2 || fail "$file is not a bundle of this kit"
      loaded=1
    fi
  fi
  previous=$argument
done
if [[ -z ${loaded:-} ]]; then
  python_image=$(setting HPS_PYTHON_IMAGE)
  docker_image=$(setting HPS_DOCKER_IMAGE)
  ca=$(setting HPS_CA_FILE)
  echo "building $image" >&2
  build=(--quiet --file=prepare.Dockerfile --tag="$image" --secret="id=ca,src=${ca:-/dev/null}")
  if [[ -n $python_image ]]; then build+=(--build-arg="BASE_IMAGE=$python_image"); fi
  if [[ -n $docker_image ]]; then build+=(--build-arg="DOCKER_IMAGE=$docker_image"); fi
  if ! DOCKER_BUILDKIT=1 docker build "${build[@]}" . >/dev/null; then
    docker image inspect "$image" >/dev/null 2>&1 || fail "$image could not be built (see above)"
    echo "prepare.sh: $image could not be built anew, as without a network; the one that is here does" >&2
  fi
fi

# The same paths inside as outside: Docker is asked for them from there.
for name in HPS_MODELS_DIR HPS_MODEL_SOURCE HPS_CA_FILE; do
  place=$(setting "$name")
  if [[ $name == HPS_MODELS_DIR && -n $place ]]; then mkdir -p "$place"; fi
  if [[ -e $place && $place != /dev/null ]]; then mounts+=("$(realpath "$place")"); fi
done
endpoint=${DOCKER_HOST:-$(docker context inspect --format '{{.Endpoints.docker.Host}}')}
socket=${endpoint#unix://}
[[ -S $socket ]] || fail "Docker is at $endpoint; needed: a Docker on this host, at a socket"
compose=$(docker compose version --short 2>/dev/null) || compose=none
arguments=(--rm --network=host --security-opt=label=disable --volume="$socket:/var/run/docker.sock" --workdir="$PWD")
arguments+=(--env="HOST_COMPOSE=$compose")
# Files belong to who runs this; in rootless Docker that is the container's root.
if ! docker info --format '{{.SecurityOptions}}' | grep -q rootless; then
  arguments+=(--user="$(id -u):$(id -g)" --group-add="$(stat -c %g "$socket")")
fi
if [[ -t 1 ]]; then arguments+=(--tty); fi
for place in "${mounts[@]}"; do arguments+=(--volume="$place:$place"); done
# Names without values: they come from this shell.
for name in $(compgen -A export | grep -iE '^(HPS_.*|HF_TOKEN|https?_proxy|no_proxy|all_proxy)$'); do
  arguments+=(--env="$name")
done
exec docker run "${arguments[@]}" "$image" "$@"
