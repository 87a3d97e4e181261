# Training, evaluation and reports; it can serve, too.
#
#   docker build -f docker/training.Dockerfile --target cpu -t longtail-training:cpu .
#   docker build -f docker/training.Dockerfile --target gpu -t longtail-training:gpu .
#
# See docker/README.md.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS tools
# The time of every file, in seconds: always the same, so that the same input gives the same layers.
ARG SOURCE_DATE_EPOCH=315532800
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} \
    PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY docker/build.lock docker/constraints.txt docker/finish.sh docker/training-cpu.lock \
    docker/training-gpu.lock ./
RUN python -m venv --without-pip /opt/venv

FROM tools AS project
RUN pip --python /opt/venv/bin/python install --no-deps --require-hashes --requirement build.lock
COPY LICENSE README.md pyproject.toml setup.py ./
COPY longtail longtail
COPY models models
COPY service service
COPY training training
RUN pip --python /opt/venv/bin/python wheel --no-deps --no-build-isolation --wheel-dir dist . \
    && pip --python /opt/venv/bin/python install --no-deps --target /opt/longtail dist/*.whl \
    && sh finish.sh /opt/longtail

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
        --requirement training-cpu.lock
RUN sh finish.sh /opt/venv

FROM tools AS packages-gpu
RUN pip --python /opt/venv/bin/python install --no-deps --require-hashes \
        --requirement training-gpu.lock
RUN sh finish.sh /opt/venv

FROM ${PYTHON_IMAGE} AS runtime
RUN echo 'longtail:x:10001:' >> /etc/group \
    && echo 'longtail:x:10001:10001::/tmp:/usr/sbin/nologin' >> /etc/passwd \
    && install -d -o 10001 -g 10001 /var/lib/longtail/registry /var/lib/longtail/runs \
        /var/lib/longtail/feedback
# Only the registry, the runs and /tmp are written to.
ENV PATH=/opt/longtail/bin:/opt/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/opt/longtail \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    XDG_CACHE_HOME=/tmp/.cache \
    MPLCONFIGDIR=/tmp/matplotlib \
    LONGTAIL_REGISTRY=/var/lib/longtail/registry
WORKDIR /var/lib/longtail
USER 10001:10001
STOPSIGNAL SIGTERM
ENTRYPOINT ["longtail"]
CMD ["--help"]
ARG VERSION=0.2.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Longtail training" \
    org.opencontainers.image.description="Trains and evaluates extreme multi-label text classification" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}"

FROM runtime AS gpu
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=packages-gpu /opt/venv /opt/venv
COPY --from=project /opt/longtail /opt/longtail

FROM runtime AS cpu
COPY --from=packages-cpu /opt/venv /opt/venv
COPY --from=project /opt/longtail /opt/longtail
