#!/bin/sh
# Run as root inside the image, with the network: a Node that is still maintained. Debian's own fetches it, and goes.
set -eu
case $(uname -m) in x86_64) machine=x64 ;; aarch64) machine=arm64 ;; *) echo "no Node for $(uname -m)" >&2; exit 1 ;; esac
npm install --silent --no-audit --no-fund --global --prefix /usr/local "node-linux-$machine@22" npm@10
mv "/usr/local/lib/node_modules/node-linux-$machine/bin/node" /usr/local/bin/node
rm -rf "/usr/local/lib/node_modules/node-linux-$machine" /root/.npm
apt-get purge -y -qq nodejs npm >/dev/null
apt-get autoremove -y -qq --purge >/dev/null
# Global packages go where a sandbox may write; the root is read-only there.
mkdir -p /usr/local/etc
printf 'prefix=/home/sandbox/.local\nupdate-notifier=false\n' >/usr/local/etc/npmrc
node --version
