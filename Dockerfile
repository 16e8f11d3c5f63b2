# One static binary on a base that has certificates and no shell.
#
#     docker build -t sluicegate --build-arg VERSION=0.2.0 --build-arg REVISION="$(git rev-parse HEAD)" .
#     docker run -p 8080:8080 -v "$PWD/etc:/etc/sluicegate:ro" sluicegate
#
# It runs /etc/sluicegate/sluicegate.yaml, and ends with an error if there is none. Mount the directory, not the
# file: a file that an editor replaces is then seen, and reloaded.
#
# The bases are named by tag, and get their security fixes with each build. To build the same image again
# later, append the digests that the tags have now, and renew them when you update:
#
#     docker buildx imagetools inspect docker.io/library/rust:1.95-trixie --format '{{.Manifest.Digest}}'
#     FROM docker.io/library/rust:1.95-trixie@sha256:... AS build

FROM docker.io/library/rust:1.95-trixie AS build
WORKDIR /build
COPY Cargo.toml Cargo.lock ./
COPY crates crates
COPY scripts/need scripts/static-build scripts/
# The dependencies, in a layer that stays until Cargo.lock or crates/ changes: built for an empty program.
RUN mkdir src benches \
    && touch src/lib.rs benches/decision.rs benches/rings.rs benches/rules.rs \
    && echo 'fn main() {}' >src/main.rs \
    && ./scripts/static-build \
    && rm -r src benches
COPY config.example.yaml ./
COPY benches benches
COPY src src
COPY docs/lints.md docs/metrics.md docs/
COPY scripts/dependencies scripts/
ARG REVISION=unknown
# Cargo compares times: these files must be newer than the empty program.
RUN touch src/lib.rs src/main.rs \
    && SLUICEGATE_REVISION="$REVISION" ./scripts/static-build \
    && install -D target/*-linux-musl/release/sluicegate /out/sluicegate \
    && ./scripts/dependencies licences >/out/third-party-licences

# The system's root certificates for https:// upstreams, and the user `nonroot`, which is 65532.
FROM gcr.io/distroless/static-debian13:nonroot
ARG VERSION=unreleased
ARG REVISION=unknown
LABEL org.opencontainers.image.title="sluicegate" \
      org.opencontainers.image.description="A rate-limiting reverse proxy" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.base.name="gcr.io/distroless/static-debian13:nonroot" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY LICENSE LICENSE-MIT LICENSE-APACHE /usr/share/doc/sluicegate/
COPY --from=build /out/third-party-licences /usr/share/doc/sluicegate/
COPY --from=build /out/sluicegate /usr/bin/sluicegate
# By number, so that Kubernetes sees that it isn't root.
USER 65532:65532
# Clients; and metrics with health, once `admin.address` is more than the container's loopback.
EXPOSE 8080 9980
# Reads the address of the admin listener in the configuration that is run by default.
HEALTHCHECK --interval=10s --timeout=11s --start-period=30s CMD ["/usr/bin/sluicegate", "healthcheck"]
ENTRYPOINT ["/usr/bin/sluicegate"]
CMD ["run", "--config", "/etc/sluicegate/sluicegate.yaml"]
