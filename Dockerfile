# The image of lease-coordinator, leasectl, lease-worker and lease-royalty.
#
# Built in two stages, so that no compiler and no header is in what runs. Plain Dockerfile words only: the classic
# builder of older engines and BuildKit both take it. Nothing is written below / at run time: run it with a
# read-only root file system and, if librdkafka is asked to write certificates or statistics, a tmpfs on /tmp.
#
#   docker build -t leasehold:local .
#   docker run --rm leasehold:local leasectl --help

FROM debian:bookworm-slim AS builder
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      gcc libc6-dev cmake make pkg-config \
      libpq-dev librdkafka-dev libjansson-dev libinih-dev libmicrohttpd-dev libcurl4-openssl-dev libssl-dev uthash-dev zlib1g-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
# No crash points: those are for tests. Two jobs, since a laptop that builds this also runs other things.
RUN cmake -S . -B /build -DCMAKE_BUILD_TYPE=RelWithDebInfo -DLEASE_CRASH_POINTS=OFF -DLEASE_TESTS=OFF \
      -DCMAKE_RUNTIME_OUTPUT_DIRECTORY=/out \
 && cmake --build /build --parallel 2 --target lease-coordinator leasectl lease-worker lease-royalty \
 && strip --strip-debug /out/lease-coordinator /out/leasectl /out/lease-worker /out/lease-royalty

FROM debian:bookworm-slim
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      ca-certificates libpq5 librdkafka1 libjansson4 libinih1 libmicrohttpd12 libcurl4 libssl3 zlib1g \
 && rm -rf /var/lib/apt/lists/* /var/cache/debconf/* /var/log/*.log /var/log/apt
COPY --from=builder /out/lease-coordinator /out/leasectl /out/lease-worker /out/lease-royalty /usr/local/bin/
COPY deploy/lease-ready /usr/local/bin/
# A number, not a name: orchestrators that insist on a non-root user can check it without reading the image.
USER 10001:10001
EXPOSE 9464
# The coordinator drains on SIGTERM; being process 1 it must be the one to get it, so no shell stands in between.
STOPSIGNAL SIGTERM
CMD ["lease-coordinator"]
