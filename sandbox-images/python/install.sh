#!/bin/sh
# Run as root inside the image, with the network: what Debian does not have.
set -eu
pip install --quiet --no-cache-dir --disable-pip-version-check --break-system-packages --only-binary :all: uv
