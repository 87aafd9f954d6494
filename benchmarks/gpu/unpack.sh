#!/usr/bin/env bash
# On the GPU machine: lays a part of pack.sh out in TARGET.   benchmarks/gpu/unpack.sh PART TARGET
set -euo pipefail
part=$1
mkdir -p "$2"
target=$(cd "$2" && pwd)
python=$target/python
site=$python/lib/python3.12/site-packages
mkdir -p "$site" "$target/paddlex"
for archive in "$part"/*.tar.xz; do
  case $archive in
    */python.tar.xz) folder=$target ;;
    */paddlex*.tar.xz) folder=$target/paddlex ;;
    *) folder=$site ;;
  esac
  python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1]).extractall(sys.argv[2], filter="fully_trusted")' \
    "$archive" "$folder"
done
