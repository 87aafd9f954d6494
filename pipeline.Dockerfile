# The pipeline: Triton with our models. On a GPU host from NVIDIA's Triton image; on a CPU from a plain Python image, where
# PARTS says `embedded models`: a wheel then brings Triton, others bring the small ONNX models.
ARG BASE_IMAGE=nvcr.io/nvidia/tritonserver:25.07-py3

FROM ${BASE_IMAGE} AS build
# Lock files below requirements/ to install, by name.
ARG PARTS="pipeline gateway docx storage torch"
# The build of PyTorch for the layout model, as pip takes it; empty: none. It is in no lock, as its builds differ in name,
# hash and dependencies.
ARG TORCH="torch==2.13.0"
WORKDIR /build
COPY requirements requirements
# A network that inspects TLS has a certificate of its own: give it as the secret `ca`; it leaves no trace in the image.
# TORCH may hold several words (an option and its value).
# hadolint ignore=SC2086
RUN --mount=type=secret,id=ca,target=/run/ca.pem \
    if [ -s /run/ca.pem ]; then export PIP_CERT=/run/ca.pem; fi \
    && python3 -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if v in ((3, 11), (3, 12)) else f"Python 3.11 or 3.12 is needed; the base image has {v}")' \
    && python3 -m venv --without-pip /opt/hps \
    && for part in $PARTS; do set -- "$@" -r "requirements/$part.txt"; done \
    && python3 -m pip --python /opt/hps/bin/python3 install --no-cache-dir --no-compile --no-deps --require-hashes "$@" \
    && if [ -n "$TORCH" ]; then \
        python3 -m pip --python /opt/hps/bin/python3 install --no-cache-dir --no-compile $TORCH; \
    fi \
    && python3 -m venv --without-pip /opt/build \
    && python3 -m pip --python /opt/build/bin/python3 install --no-cache-dir --no-compile --no-deps --require-hashes \
        -r requirements/build.txt
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src src
COPY gateway gateway
RUN /opt/build/bin/python3 -c 'from setuptools import build_meta; build_meta.build_wheel("dist")' \
    && python3 -m pip --python /opt/hps/bin/python3 install --no-cache-dir --no-compile --no-deps --no-index dist/*.whl \
    && /opt/hps/bin/python3 -m compileall -q -j 0 /opt/hps/lib

FROM ${BASE_IMAGE}
COPY --from=build /opt/hps /opt/hps
COPY model_repo /opt/hps/model_repo
# Where a volume for compiled models is put: a new volume takes the owner of what it covers.
RUN install -d -o 10001 -g 10001 /cache
# Triton's model processes take their packages from the first python3 in PATH.
ENV PATH=/opt/hps/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 IN_HPS_CONTAINER=1 \
    HPS_MODEL_REPOSITORY=/opt/hps/model_repo ORT_DISABLE_TELEMETRY=1
USER 10001:10001
EXPOSE 8000 8001 8002
# Every public model answers a request that touches all stages but the VLM. The start period covers the first compilation of
# the layout model (HPS_LAYOUT_COMPILE: 322 s on an H200); a start that is done earlier counts from then.
HEALTHCHECK --interval=10s --timeout=15s --retries=3 --start-period=600s \
    CMD ["python3", "-m", "hps.liveness", "pipeline"]
ENTRYPOINT []
CMD ["hps", "triton"]
