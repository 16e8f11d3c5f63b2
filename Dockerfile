# One static binary on a base that has certificates and no shell.
#
#     docker build -t sluicegate .
#     docker run -p 8080:8080 -v "$PWD/etc:/etc/sluicegate:ro" sluicegate
#
# It runs /etc/sluicegate/sluicegate.yaml, and ends with an error if there is none. Mount the directory, not the
# file: a file that an editor replaces is then seen, and reloaded.

FROM docker.io/library/rust:1.95-bookworm AS build
WORKDIR /build
COPY Cargo.toml Cargo.lock config.example.yaml ./
COPY scripts/need scripts/static-build scripts/
COPY benches benches
COPY src src
COPY docs/lints.md docs/
RUN install -D "$(./scripts/static-build)" /out/sluicegate

# The system's root certificates for https:// upstreams, and the user `nonroot`.
FROM gcr.io/distroless/static-debian12:nonroot
ARG VERSION=unreleased
ARG REVISION=unknown
LABEL org.opencontainers.image.title="sluicegate" \
      org.opencontainers.image.description="A rate-limiting reverse proxy" \
      org.opencontainers.image.licenses="MIT OR Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY LICENSE LICENSE-MIT LICENSE-APACHE /usr/share/doc/sluicegate/
COPY --from=build /out/sluicegate /usr/bin/sluicegate
USER nonroot:nonroot
# Clients; and metrics with health, once `admin.address` is more than the container's loopback.
EXPOSE 8080 9980
ENTRYPOINT ["/usr/bin/sluicegate"]
CMD ["run", "--config", "/etc/sluicegate/sluicegate.yaml"]
