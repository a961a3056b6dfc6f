#!/bin/sh
# Runs a command in a folder that has only some of its files: only.sh PATH... -- COMMAND [ARGUMENT...]
# The caller gives it a mount namespace of its own (`unshare --mount`). An empty file system covers the working
# folder, and the paths are mounted on it, a folder before what is in it.
set -eu
# This namespace's copies of mounts would keep the loop devices of a cluster's volumes in use.
awk '$3 ~ /^7:/ { print $5 }' /proc/self/mountinfo | xargs --no-run-if-empty umount --lazy
root=$PWD
whole=$(mktemp -d)
mount --bind "$root" "$whole"
mount -t tmpfs -o mode=755 only "$root"
for made in .trainyard .venv; do # by `make prepared`, from what all read
    [ ! -d "$whole/$made" ] || set -- "$made" "$@"
done
while [ "$1" != -- ]; do
    if [ -d "$whole/$1" ]; then
        mkdir -p "$root/$1"
    elif [ ! -e "$root/$1" ]; then
        mkdir -p "$(dirname "$root/$1")"
        : >"$root/$1"
    fi
    mount --bind "$whole/$1" "$root/$1"
    shift
done
shift
umount --lazy "$whole"
rmdir "$whole"
cd "$root"
[ -e .git ] || git init --quiet # tests list the files of a clone
exec "$@"
