#!/usr/bin/env bash
# Debian's python3 comes without venv: install it where we may, else say how.
set -euo pipefail

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "belljar: this Python cannot make virtual environments: install python3-venv" >&2
  exit 1
fi
echo "belljar: installing python3-venv" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get -qq -o DPkg::Lock::Timeout=300 update >&2
apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends python3-venv >&2
