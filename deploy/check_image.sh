#!/usr/bin/env bash
# What a container of deploy/Containerfile gives workers, without containers: Debian's file system in build/image, read-only,
# a user without rights and no capabilities. Needs root and debootstrap, and the wheels that `make dist` leaves.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD/build/image
if [[ ! -x $root/opt/codemode/bin/codemode ]]; then
  rm -rf "$root"
  debootstrap --variant=minbase --include=python3-venv,ca-certificates bookworm "$root" >/dev/null
  mkdir -p "$root/state"
  chroot "$root" python3 -m venv /opt/codemode
fi
mkdir -p "$root/wheels"
cp build/wheels/*.whl "$root/wheels/"
chroot "$root" /opt/codemode/bin/pip install --quiet --no-index --find-links /wheels --force-reinstall --no-deps codemode-toolkit codemode-console codemode-gateway
chroot "$root" /opt/codemode/bin/pip install --quiet --no-index --find-links /wheels 'codemode-toolkit[postgres,sealed,telemetry]' codemode-console codemode-gateway
rm -rf "$root/wheels"

# Mounts of a namespace of their own: they end with it.
root=$root unshare --mount --pid --fork bash -euc '
  mount --bind "$root" "$root"
  mount --bind /dev "$root/dev"
  mount -t proc proc "$root/proc"
  mount -o remount,bind,ro "$root"
  mount -t tmpfs tmpfs "$root/tmp"
  mount -t tmpfs -o uid=10001,gid=10001,mode=700 tmpfs "$root/state"
  exec chroot "$root" setpriv --reuid=10001 --regid=10001 --clear-groups --bounding-set=-all --inh-caps=-all --no-new-privs \
    env -i PATH=/opt/codemode/bin:/usr/bin XDG_STATE_HOME=/state sh -c "python -c \"import psycopg, psycopg_pool\" && codemode doctor --required"'
