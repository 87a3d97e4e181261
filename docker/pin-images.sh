# Prints the images that are named by tag with their digests, as lines of a file of variables:
#
#   sh docker/pin-images.sh >> .env        # which docker compose reads
set -eu
for image in PYTHON_IMAGE=python:3.11-slim-bookworm PROMETHEUS_IMAGE=prom/prometheus:v3.5.0 \
    GRAFANA_IMAGE=grafana/grafana:12.0.2
do
    digest=$(docker buildx imagetools inspect "${image#*=}" --format '{{.Manifest.Digest}}')
    echo "$image@$digest"
done
