#!/bin/sh
# Run as root inside the image: a Node that is still maintained. /.fetched holds two packages of the npm registry: one is
# Node itself, built for this machine, the other is npm.
set -eu
mkdir -p /usr/local/bin /usr/local/lib/node_modules/npm /usr/local/etc
tar -xzf /.fetched/node-linux-*.tgz -C /usr/local/bin --strip-components=2 package/bin/node
tar -xzf /.fetched/npm-*.tgz -C /usr/local/lib/node_modules/npm --strip-components=1
ln -sf ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm
ln -sf ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx
# Global packages go where a sandbox may write; the root is read-only there.
printf 'prefix=/home/sandbox/.local\nupdate-notifier=false\n' >/usr/local/etc/npmrc
node --version
