# Stands in for NVIDIA's Triton image: the server of the wheel nvidia-pytriton, laid out as it is there.
ARG BASE_IMAGE=hps-test-python:3.11

FROM ${BASE_IMAGE} AS wheel
COPY requirements/models.txt /tmp/models.txt
# The lock's lines of that one wheel.
RUN sed -n '/^nvidia-pytriton==/,/[^\\]$/p' /tmp/models.txt > /tmp/wheel.txt \
    && python3 -m pip install --no-cache-dir --no-deps --require-hashes --target /wheel -r /tmp/wheel.txt \
    && mv /wheel/pytriton/tritonserver /opt/tritonserver \
    && mv /wheel/nvidia_pytriton.libs /opt/tritonserver/lib \
    && version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])') \
    && cp "/opt/tritonserver/python_backend_stubs/$version/triton_python_backend_stub" /opt/tritonserver/backends/python/

FROM ${BASE_IMAGE}
COPY --from=wheel /opt/tritonserver /opt/tritonserver
ENV PATH=/opt/tritonserver/bin:$PATH LD_LIBRARY_PATH=/opt/tritonserver/lib
