# What ./prepare.sh runs in: `hps prepare` and Docker's command line, for hosts where only Docker is installed.
ARG BASE_IMAGE=python:3.11.13-slim-bookworm
ARG DOCKER_IMAGE=docker:28.3.3-cli

FROM ${DOCKER_IMAGE} AS docker

FROM ${BASE_IMAGE} AS build
WORKDIR /build
COPY requirements requirements
# A network that inspects TLS has a certificate of its own: give it as the secret `ca`; it leaves no trace in the image.
RUN --mount=type=secret,id=ca,target=/run/ca.pem \
    if [ -s /run/ca.pem ]; then export PIP_CERT=/run/ca.pem; fi \
    && python3 -m venv --without-pip /opt/hps \
    && python3 -m pip --python /opt/hps/bin/python3 install --no-cache-dir --no-compile --no-deps --require-hashes \
        -r requirements/prepare.txt \
    && python3 -m venv --without-pip /opt/build \
    && python3 -m pip --python /opt/build/bin/python3 install --no-cache-dir --no-compile --no-deps --require-hashes \
        -r requirements/build.txt
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src src
COPY gateway gateway
RUN /opt/build/bin/python3 -c 'from setuptools import build_meta; build_meta.build_wheel("dist")' \
    && python3 -m pip --python /opt/hps/bin/python3 install --no-cache-dir --no-compile --no-deps --no-index dist/*.whl

FROM ${BASE_IMAGE}
COPY --from=docker /usr/local/bin/docker /usr/local/bin/docker
COPY --from=docker /usr/local/libexec/docker/cli-plugins /usr/local/libexec/docker/cli-plugins
COPY --from=build /opt/hps /opt/hps
# Its user is whoever runs prepare.sh, who has no home here.
ENV PATH=/opt/hps/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp BUILDX_CONFIG=/tmp/buildx
ENTRYPOINT ["hps", "prepare"]
