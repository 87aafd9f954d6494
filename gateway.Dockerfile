# The gateway: Python, the package hps with the extra [gateway], nothing else.
ARG BASE_IMAGE=python:3.11.13-slim-bookworm

FROM ${BASE_IMAGE} AS build
WORKDIR /build
COPY requirements/build.txt requirements/gateway.txt requirements/
# A network that inspects TLS has a certificate of its own: give it as the secret `ca`; it leaves no trace in the image.
RUN --mount=type=secret,id=ca,target=/run/ca.pem \
    if [ -s /run/ca.pem ]; then export PIP_CERT=/run/ca.pem; fi \
    && python3 -m venv /opt/hps \
    && /opt/hps/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes \
        -r requirements/build.txt -r requirements/gateway.txt
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src src
COPY gateway gateway
RUN /opt/hps/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/hps/bin/pip uninstall --yes wheel setuptools pip \
    && python3 -m compileall -q -j 0 /opt/hps/lib

FROM ${BASE_IMAGE}
COPY --from=build /opt/hps /opt/hps
ENV PATH=/opt/hps/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 IN_HPS_CONTAINER=1
USER 10001:10001
EXPOSE 8080
# Whether this process answers. Whether the service is ready is /health/ready, which is not ours alone.
HEALTHCHECK --interval=10s --timeout=5s --retries=3 --start-period=60s --start-interval=1s \
    CMD ["python3", "-m", "hps.liveness", "gateway"]
CMD ["python3", "-m", "gateway"]
