#!/usr/bin/env bash
# Packs what benchmarks/gpu/run.sh needs on a GPU machine that has no network but a Python 3.12 with PyTorch and
# transformers: Triton, a Python 3.12 of our own, NumPy 1.26 (with 2 Triton 2.51's stub dies), OpenCV, what gateway and
# pipeline import, and PaddleX, which `whole_chain.py --paddlex TARGET/paddlex/python` measures. Three parts of less than
# 60 MiB each are left in OUT.
#
#   benchmarks/gpu/pack.sh OUT PYTHON312     (PYTHON312: prefix of a relocatable Python 3.12 with libpython3.12.so)
#
# Needs the environment of `make setup`, pip with access to a package index (also that of PYTHON312), xz, strip.
set -euo pipefail
out=$(mkdir -p "$1" && cd "$1" && pwd)
python312=$(cd "$2" && pwd)
cd "$(dirname "$0")/../.."
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out/a" "$out/b" "$out/c"

pack() { # FILE FOLDER NAME…
  tar -c -C "$2" "${@:3}" | xz -6 -T0 >"$1"
}

echo "packages" >&2
ours=$(sed -n 's/^\([a-z0-9-]*==[^ ;]*\).*/\1/p' requirements/gateway.txt requirements/pipeline.txt | grep -v opencv | sort -u)
platforms=(--platform manylinux2014_x86_64)
for glibc in 28 27 24 17; do platforms+=(--platform "manylinux_2_${glibc}_x86_64"); done
python3 -m pip install --quiet --no-deps --no-compile --only-binary=:all: --python-version 3.12 --implementation cp \
  "${platforms[@]}" --target "$work/packages" --requirement <(echo "$ours")
find "$work/packages" -depth -type d -name tests -exec rm -rf {} +
pack "$out/b/packages.tar.xz" "$work/packages" .

echo "OpenCV" >&2
pack "$out/a/opencv.tar.xz" "$site" cv2 opencv_python_headless.libs

echo "Triton" >&2
triton=pytriton/tritonserver
(cd "$site" && find nvidia_pytriton.libs -type f ! -name 'libpython*') >"$work/libraries"
pack "$out/b/triton.tar.xz" "$site" pytriton/__init__.py $triton/bin $triton/backends $triton/python_backend_stubs/3.12 \
  --files-from "$work/libraries"

echo "Python" >&2
mkdir -p "$work/python/bin" "$work/python/lib"
cp "$python312/bin/python3.12" "$work/python/bin/"
ln -s python3.12 "$work/python/bin/python3"
cp "$python312/lib/libpython3.12.so.1.0" "$work/python/lib/"
cp -r "$python312/include" "$work/python/"
cp -r "$python312/lib/python3.12" "$work/python/lib/"
(
  cd "$work/python/lib/python3.12"
  rm -rf site-packages test idlelib tkinter turtledemo ensurepip lib2to3 config-3.12*
  find . -depth -type d \( -name __pycache__ -o -name test -o -name tests \) -exec rm -rf {} +
  mkdir site-packages
)
find "$work/python" -name '*.so*' -type f -exec strip --strip-unneeded {} +
pack "$out/c/python.tar.xz" "$work" python

# OpenCV is the one of part a: PaddleX's own release of it, with Qt and FFmpeg, is as large as a part.
echo "PaddleX" >&2
"$python312/bin/python3.12" -m pip install --quiet --no-deps --no-compile --only-binary=:all: --require-hashes \
  --target "$work/paddlex" --requirement requirements/paddlex.txt
cat >"$work/paddlex/python" <<'SH'
#!/bin/sh
packages=$(dirname "$0")
export PYTHONPATH="$packages" LD_LIBRARY_PATH="$packages/../python/lib"
exec "$packages/../python/bin/python3" "$@"
SH
chmod +x "$work/paddlex/python"
(
  cd "$work/paddlex"
  rm -rf cv2 opencv_contrib_python.libs hf_xet bin
  find . -depth -type d \( -name test -o -name tests \) -exec rm -rf {} +
  find . -maxdepth 1 \( -name 'numpy*' -o -name 'scipy*' \) >../arrays
  find . -maxdepth 1 -mindepth 1 ! -name 'numpy*' ! -name 'scipy*' >../others
)
pack "$out/a/paddlex-arrays.tar.xz" "$work/paddlex" --files-from "$work/arrays"
pack "$out/c/paddlex.tar.xz" "$work/paddlex" --files-from "$work/others"

du -sh "$out/a" "$out/b" "$out/c"
