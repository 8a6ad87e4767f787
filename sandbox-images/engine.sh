#!/usr/bin/env bash
# An engine that answers. One that is there is used as it is; else, as root on a Debian-like system, docker.io is
# installed and its daemon started in the background. Safe to run twice at once: the second waits and finds it done.
set -euo pipefail

LOG=${BELLJAR_ENGINE_LOG:-/var/log/belljar-dockerd.log}
LOCK=/run/lock/belljar-engine.lock
START_SECONDS=60 # a first start initialises its storage; measured 2 s here, slow disks take longer

say() { printf '%s\n' "$*" >&2; }
die() { say "belljar: $*"; exit 1; }

# No docker client is needed: newer Debian releases ship it apart from the daemon.
answers() {
  python3 - <<'PY'
import os, socket, sys
from urllib.parse import urlsplit

runtime = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
places = ["unix:///var/run/docker.sock", f"unix://{runtime}/docker.sock", f"unix://{runtime}/podman/podman.sock",
          "unix:///run/podman/podman.sock"]
if os.environ.get("DOCKER_HOST"):
    places = [os.environ["DOCKER_HOST"]]

def ping(place):
    url = urlsplit(place)
    if url.scheme not in ("unix", "tcp", "http"):
        return False
    family = socket.AF_UNIX if url.scheme == "unix" else socket.AF_INET
    with socket.socket(family) as sock:
        sock.settimeout(5)
        sock.connect(url.path if url.scheme == "unix" else (url.hostname, url.port or 2375))
        sock.sendall(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
        return b" 200 " in sock.recv(64)

for place in places:
    try:
        if ping(place):
            sys.exit(0)
    except OSError:
        pass
sys.exit(1)
PY
}

# ssh:// hosts, TLS and docker contexts: only the client knows how to reach them.
client_answers() { command -v docker >/dev/null && docker version >/dev/null 2>&1; }

ready() { answers || client_answers; }

install_engine() {
  say "belljar: no container engine answers; installing docker.io"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq -o DPkg::Lock::Timeout=300 update >&2
  apt-get -qq -y -o DPkg::Lock::Timeout=300 install --no-install-recommends \
    docker.io iptables ca-certificates mmdebstrap debian-archive-keyring >&2
}

start_daemon() { # [flag…]
  say "belljar: starting dockerd (log: $LOG)"
  mountpoint -q /sys/fs/cgroup || mount -t cgroup2 cgroup2 /sys/fs/cgroup
  # 9 is the lock: a daemon that inherited it would hold it for ever.
  setsid dockerd "$@" </dev/null >>"$LOG" 2>&1 9>&- &
  local daemon=$! second
  for ((second = 0; second < START_SECONDS * 5; second++)); do
    answers && return 0
    kill -0 "$daemon" 2>/dev/null || return 1
    sleep 0.2
  done
  return 1
}

start_engine() {
  if [ -d /run/systemd/system ]; then
    systemctl start docker >&2
  else
    # A package's own start script may have been at work.
    answers || start_daemon && return
    say "belljar: dockerd did not start; trying without its network (sandboxes with --network full will not work)"
    start_daemon --iptables=false --ip6tables=false --bridge=none
  fi
}

ready && exit 0
[ -z "${DOCKER_HOST:-}" ] || die "DOCKER_HOST is $DOCKER_HOST, but no engine answers there"
[ "$(id -u)" = 0 ] || die "no container engine answers: install and start Docker (or Podman's socket), or run this as root on Debian"
command -v dockerd >/dev/null || command -v apt-get >/dev/null ||
  die "no container engine answers and this is not a Debian-like system: install and start Docker or Podman"

mkdir -p "${LOCK%/*}"
exec 9>"$LOCK"
flock 9
ready && exit 0
command -v dockerd >/dev/null || install_engine
{ start_engine && ready; } || die "the engine did not start; the end of $LOG says: $(tail -n 3 "$LOG" 2>/dev/null)"
