#!/bin/sh
# Starts HPS_VLM_REPLICAS vLLM servers on consecutive ports and keeps them running; the logic is src/hps/vlm_server.
set -eu
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
if [ -d "$here/vlm_server" ]; then # in the image
  folder=$here
  package=vlm_server
else # in a checkout
  folder=$here/../src
  package=hps.vlm_server
fi
export PYTHONPATH="$folder${PYTHONPATH:+:$PYTHONPATH}"
exec "${PYTHON:-python3}" -m "$package" "$@"
