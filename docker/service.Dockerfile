# The service, without training code and without a compiler.
#
#   docker build -f docker/service.Dockerfile --target cpu -t longtail-service:cpu .
#   docker build -f docker/service.Dockerfile --target gpu -t longtail-service:gpu .
#
# See docker/README.md: build arguments, layers, and what was run.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS tools
# The time of every file, in seconds: always the same, so that the same input gives the same layers.
ARG SOURCE_DATE_EPOCH=315532800
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} \
    PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY docker/build.lock docker/constraints.txt docker/finish.sh docker/service-cpu.lock \
    docker/service-gpu.lock ./
RUN python -m venv --without-pip /opt/venv

FROM tools AS packages-cpu
# PyPI's torch brings gigabytes of CUDA libraries; PyTorch's own index has builds without them.
ARG TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu
# The SHA-256 of torch's file, as that index publishes it; nothing else of the lock comes from there.
ARG TORCH_SHA256=""
RUN grep '^torch==' constraints.txt > torch.txt \
    && if [ -n "${TORCH_SHA256}" ]; then sed -i "s/$/ --hash=sha256:${TORCH_SHA256}/" torch.txt; fi \
    && pip --python /opt/venv/bin/python install --no-deps --index-url "${TORCH_INDEX_URL}" \
        -r torch.txt
RUN pip --python /opt/venv/bin/python install --no-deps --require-hashes \
        --requirement service-cpu.lock
# More packages, such as "s3fs".
ARG EXTRA_PACKAGES=""
RUN [ -z "${EXTRA_PACKAGES}" ] || pip --python /opt/venv/bin/python install \
        --constraint constraints.txt ${EXTRA_PACKAGES}
RUN sh finish.sh /opt/venv

FROM tools AS packages-gpu
RUN pip --python /opt/venv/bin/python install --no-deps --require-hashes \
        --requirement service-gpu.lock
ARG EXTRA_PACKAGES=""
RUN [ -z "${EXTRA_PACKAGES}" ] || pip --python /opt/venv/bin/python install \
        --constraint constraints.txt ${EXTRA_PACKAGES}
RUN sh finish.sh /opt/venv

FROM tools AS project
RUN pip --python /opt/venv/bin/python install --no-deps --require-hashes --requirement build.lock
COPY LICENSE README.md pyproject.toml setup.py ./
COPY longtail longtail
COPY models models
COPY service service
# `training` is not here, so the wheel has none of it.
RUN pip --python /opt/venv/bin/python wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && pip --python /opt/venv/bin/python install --no-deps --target /opt/longtail dist/*.whl \
    && sh finish.sh /opt/longtail

FROM ${PYTHON_IMAGE} AS runtime
RUN echo 'longtail:x:10001:' >> /etc/group \
    && echo 'longtail:x:10001:10001::/tmp:/usr/sbin/nologin' >> /etc/passwd \
    && install -d -o 10001 -g 10001 /var/lib/longtail/registry /var/lib/longtail/feedback
# Only the registry and /tmp are written to: caches, and all that use HOME, go to /tmp.
ENV PATH=/opt/longtail/bin:/opt/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/opt/longtail \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    XDG_CACHE_HOME=/tmp/.cache \
    HF_HUB_OFFLINE=1 \
    LONGTAIL_REGISTRY=/var/lib/longtail/registry \
    LONGTAIL_HOST=0.0.0.0 \
    LONGTAIL_PORT=8000 \
    LONGTAIL_LOG_FORMAT=json
COPY --chmod=0444 docker/healthcheck.py /opt/healthcheck.py
WORKDIR /tmp
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 \
    CMD ["python", "-I", "/opt/healthcheck.py"]
ENTRYPOINT ["longtail"]
CMD ["serve"]
ARG VERSION=0.2.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Longtail service" \
    org.opencontainers.image.description="Labels for texts out of very large label sets, over HTTP" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"

FROM runtime AS gpu
# What the NVIDIA container runtime shall bring from the host: the driver, not CUDA.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=packages-gpu /opt/venv /opt/venv
COPY --from=project /opt/longtail /opt/longtail

FROM runtime AS cpu
COPY --from=packages-cpu /opt/venv /opt/venv
COPY --from=project /opt/longtail /opt/longtail
