#!/bin/sh
# Starts HPS_VLM_REPLICAS vLLM servers on consecutive ports and keeps them running; the logic is src/hps/vlm_server.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
# In the image the package lies beside this script; in a checkout below src/hps.
for folder in "$here" "$here/../src/hps"; do
  if [ -d "$folder/vlm_server" ]; then
    export PYTHONPATH="$folder${PYTHONPATH:+:$PYTHONPATH}"
    exec "${PYTHON:-python3}" -m vlm_server "$@"
  fi
done
echo "vlm: the package vlm_server is missing" >&2
exit 2
