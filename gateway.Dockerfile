# The gateway: Python, the package hps with the extras [gateway,cache], nothing else.
ARG BASE_IMAGE=python:3.11.13-slim-bookworm

FROM ${BASE_IMAGE} AS build
WORKDIR /build
COPY requirements requirements
# A network that inspects TLS has a certificate of its own: give it as the secret `ca`; it leaves no trace in the image.
RUN --mount=type=secret,id=ca,target=/run/ca.pem \
    if [ -s /run/ca.pem ]; then export PIP_CERT=/run/ca.pem; fi \
    && python3 -m venv --without-pip /opt/hps \
    && python3 -m pip --python /opt/hps/bin/python3 install --no-cache-dir --no-compile --no-deps --require-hashes \
        -r requirements/gateway.txt -r requirements/cache.txt \
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
ENV PATH=/opt/hps/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 IN_HPS_CONTAINER=1
USER 10001:10001
EXPOSE 8080
# Whether this process answers. Whether the service is ready is /health/ready, which is not ours alone.
HEALTHCHECK --interval=10s --timeout=10s --retries=3 --start-period=60s \
    CMD ["python3", "-m", "hps.liveness", "gateway", "8080"]
CMD ["python3", "-m", "gateway"]
