#!/bin/sh
# The last step of every image, run as root inside it: what a sandbox needs to find, and nothing that it never reads.
set -eu

id sandbox >/dev/null 2>&1 || useradd --uid 1000 --home-dir /home/sandbox --no-create-home --shell /bin/bash sandbox
# Every command starts a bash. Debian's static one, of the same source, starts in two thirds of the time; it only cannot
# load builtins from files, of which there are none here.
if [ -x /bin/bash-static ]; then mv -f /bin/bash-static /bin/bash; fi
# Debian's small vim answers to `vi` alone; whole ones come first.
if [ -x /usr/bin/vim.tiny ]; then update-alternatives --quiet --install /usr/bin/vim vim /usr/bin/vim.tiny 1; fi
# Mount points: the root is read-only by the time they are needed. No home: runc gives a file system in memory the mode of
# the directory that it hides, and Podman cannot name its owner, so nobody could write there.
mkdir -p /workspace /.belljar
chown 1000:1000 /workspace

# A sandbox is thrown away: there is no system here that pip could break, and its own files go to the home directory.
rm -f /usr/lib/python3*/EXTERNALLY-MANAGED
if [ -e /usr/share/i18n/locales/en_US ]; then localedef -i en_US -f UTF-8 en_US.UTF-8; fi

# Of the machine that built it: how names are looked up there, and whom it trusts.
rm -rf /.fetched
rm -f /etc/resolv.conf
printf '127.0.0.1 localhost\n' >/etc/hosts
if command -v update-ca-certificates >/dev/null; then update-ca-certificates --fresh >/dev/null 2>&1; fi

find /usr/share/doc -depth -type f ! -name copyright -delete
find /usr/share/doc -depth -type d -empty -delete
rm -rf /usr/share/man/* /usr/share/info/* /usr/share/locale/* /usr/share/lintian /usr/share/bug
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb /var/cache/debconf/*-old
rm -rf /var/log/*.log /var/log/apt /var/lib/dpkg/*-old
# Nothing inside may become somebody else; no-new-privileges says so too.
find / -xdev -type f -perm /6000 -exec chmod a-s {} +
