# The server's image: an empty file system with Python, the packages of requirements-image.lock and Noosphere.
#   docker build --tag noosphere:0.1.0 .
# For the same bytes each time: SOURCE_DATE_EPOCH as a build argument, and --output type=image,rewrite-timestamp=true.
FROM python:3.11.14-slim-bookworm AS build

ARG SOURCE_DATE_EPOCH=1767225600
ENV SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH} \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONHASHSEED=0

WORKDIR /src
COPY requirements-build.lock requirements-image.lock ./
# Wheels alone: what a package's own setup would run, and a compiler would make, is not the same each time.
RUN python -m venv /build \
    && /build/bin/python -m pip install --no-compile --only-binary :all: --require-hashes -r requirements-build.lock \
    && python -m venv /environment \
    && /environment/bin/python -m pip install --no-compile --only-binary :all: --require-hashes -r requirements-image.lock

COPY pyproject.toml README.md LICENSE ./
COPY protos protos
COPY consistency consistency
COPY client client
COPY server server
COPY scripts/image_root.py scripts/
RUN /build/bin/python -m hatchling build --target wheel --directory /wheel \
    && /environment/bin/python -m pip install --no-compile --no-index --no-deps /wheel/*.whl \
    && python scripts/image_root.py /image --environment /environment

FROM scratch
COPY --from=build /image /
# By number: Kubernetes cannot tell whether a name is root's.
USER 65532:65532
WORKDIR /var/lib/noosphere
EXPOSE 7443
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/noosphere/bin/noosphere"]
CMD ["serve"]
