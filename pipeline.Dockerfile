# The pipeline: Triton with our models. On a GPU host from NVIDIA's Triton image; on a CPU from a plain Python image, where
# PARTS includes `embedded` and `models`: a wheel then brings Triton, others bring the small ONNX models.
ARG BASE_IMAGE=nvcr.io/nvidia/tritonserver:25.07-py3

FROM ${BASE_IMAGE} AS build
# Lock files below requirements/ to install, by name.
ARG PARTS="pipeline docx storage torch"
# The build of PyTorch for the layout model; empty: none. It is in no lock, as its builds differ in name and hash.
ARG TORCH=""
WORKDIR /build
COPY requirements requirements
# A network that inspects TLS has a certificate of its own: give it as the secret `ca`; it leaves no trace in the image.
RUN --mount=type=secret,id=ca,target=/run/ca.pem \
    if [ -s /run/ca.pem ]; then export PIP_CERT=/run/ca.pem; fi \
    && python3 -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v in ((3, 11), (3, 12)) else f"Python 3.11 or 3.12 is needed; the base image has {v}")' \
    && python3 -m venv /opt/hps \
    && for part in build $PARTS; do set -- "$@" -r "requirements/$part.txt"; done \
    && /opt/hps/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes "$@" \
    && if [ -n "$TORCH" ]; then /opt/hps/bin/pip install --no-cache-dir --no-compile "$TORCH"; fi
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src src
COPY gateway gateway
RUN /opt/hps/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/hps/bin/pip uninstall --yes wheel pip \
    && python3 -m compileall -q -j 0 /opt/hps/lib

FROM ${BASE_IMAGE}
COPY --from=build /opt/hps /opt/hps
COPY model_repo /opt/hps/model_repo
ENV PATH=/opt/hps/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 IN_HPS_CONTAINER=1 \
    HPS_MODEL_REPOSITORY=/opt/hps/model_repo ORT_DISABLE_TELEMETRY=1
USER 10001:10001
EXPOSE 8000 8001 8002
# Every public model answers a request that touches all stages but the VLM.
HEALTHCHECK --interval=10s --timeout=15s --retries=3 --start-period=180s --start-interval=1s \
    CMD ["python3", "-m", "hps.liveness", "pipeline"]
CMD ["hps", "triton"]
