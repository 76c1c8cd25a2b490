# Builds in one image and runs in another, which contains only the program and CA certificates, beside a minimal Debian:
#   docker build -t tollgate .
#   docker build --target distroless -t tollgate .    beside the C library only: no shell, no package manager
# The program has the names of its functions, for backtraces; its debug information is a stage of its own:
#   docker build --target symbols --output . .      writes tollgate.debug

FROM rust:1.95-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends cmake \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY Cargo.toml Cargo.lock build.rs order.ld ./
COPY benches benches
COPY docs/gateway.schema.json docs/openapi.json docs/
COPY lua lua
COPY scripts scripts
COPY src src
COPY tests/model tests/model
COPY tests/pure tests/pure
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
    && scripts/split-debug "target/$BUILD/tollgate" \
    && cp "target/$BUILD/tollgate" "target/$BUILD/tollgate.debug" /

FROM scratch AS symbols
COPY --from=build /tollgate.debug /

# CA certificates and time zones are in the base.
FROM gcr.io/distroless/cc-debian12 AS distroless
COPY --from=build /tollgate /usr/local/bin/tollgate
COPY gateway.toml /etc/tollgate/gateway.toml
USER 10001
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=3s --start-period=5s \
    CMD ["tollgate", "health", "/etc/tollgate/gateway.toml"]
ENV MIMALLOC_PURGE_DELAY=100
STOPSIGNAL SIGTERM
ENTRYPOINT ["tollgate"]
CMD ["run", "/etc/tollgate/gateway.toml"]

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin tollgate
COPY --from=build /tollgate /usr/local/bin/tollgate
COPY gateway.toml /etc/tollgate/gateway.toml
# By number: with `runAsNonRoot`, Kubernetes starts no image whose user is a name.
USER 10001
EXPOSE 8080
# Asks the admin port of the file. With another file than this one, pass its path here, too:
# `docker run --health-cmd 'tollgate health FILE'`, or `healthcheck:` in Compose.
HEALTHCHECK --interval=5s --timeout=3s --start-period=5s \
    CMD ["tollgate", "health", "/etc/tollgate/gateway.toml"]
# Milliseconds until the allocator returns freed memory to the system, also if no more requests come.
ENV MIMALLOC_PURGE_DELAY=100
STOPSIGNAL SIGTERM
ENTRYPOINT ["tollgate"]
CMD ["run", "/etc/tollgate/gateway.toml"]
