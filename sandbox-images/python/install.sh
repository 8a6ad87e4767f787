#!/bin/sh
# Run as root inside the image: what Debian does not have. /.fetched holds what the machine that builds it could fetch.
set -eu
pip install --quiet --no-cache-dir --disable-pip-version-check --break-system-packages --only-binary :all: \
    $([ -z "$(ls /.fetched/uv-*.whl 2>/dev/null)" ] || echo --no-index --find-links /.fetched) uv
