# Builds in one image and runs in another, which contains the program and curl for the health check.

FROM rust:1.95-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends cmake \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY Cargo.toml Cargo.lock ./
COPY benches benches
COPY docs/gateway.schema.json docs/openapi.json docs/
COPY lua lua
COPY scripts scripts
COPY src src
COPY tests/model tests/model
# `--build-arg BUILD=pgo`: profile-guided optimisation. Slower to build, faster to run.
ARG BUILD=release
# Caches of builds and downloads, outside of the image.
RUN --mount=type=cache,target=/build/target \
    --mount=type=cache,target=/usr/local/cargo/registry \
    case "$BUILD" in \
        pgo) scripts/need nginx python3 redis-server wrk && scripts/pgo --locked ;; \
        release) cargo build --release --locked ;; \
        *) echo "error: BUILD is release or pgo" >&2; exit 1 ;; \
    esac \
    && cp "target/$BUILD/tollgate" /tollgate

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates curl \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --no-create-home tollgate
COPY --from=build /tollgate /usr/local/bin/tollgate
COPY gateway.toml /etc/tollgate/gateway.toml
USER tollgate
EXPOSE 8080
# The admin port also listens on loopback for every address in the file.
HEALTHCHECK --interval=5s --timeout=2s --start-period=5s \
    CMD curl -fsS http://127.0.0.1:9090/ready || exit 1
STOPSIGNAL SIGTERM
ENTRYPOINT ["tollgate"]
CMD ["run", "-c", "/etc/tollgate/gateway.toml"]
