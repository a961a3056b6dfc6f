#!/bin/sh
# Makes .venv hold what requirements/NAME.txt locks, Trainyard itself and its training package:
# bootstrap.sh local|dev|aws|gcp|azure|coreweave [--verbose]
# Costs nothing where it does already: a stamp in .venv holds the hash of all that went in. The locks agree on every
# version that they share, so one can be installed over another; each holds all of local.
set -eu
cd "$(dirname "$0")/.."
name=$1
quiet=--quiet
if [ "${2:-}" = --verbose ]; then quiet=; fi
lock=requirements/$name.txt

fail() { # what was got, what is allowed, what to do
    printf '%s\n  got:     %s\n  allowed: %s\n  fix:     %s\n' "Python environment" "$1" "$2" "$3" >&2
    exit 3
}

stamp_of() { cat pyproject.toml training/pyproject.toml requirements/uv.txt "requirements/$1.txt" local/bootstrap.sh | sha256sum; }

mkdir -p .trainyard
exec 9>.trainyard/bootstrap.lock
flock 9 # a second run waits, and then finds it done
wanted=$(stamp_of "$name")
if [ -f ".venv/.stamp-$name" ] && [ "$(cat ".venv/.stamp-$name")" = "$wanted" ] && .venv/bin/python -c ''; then
    exit 0
fi

python=${PYTHON:-python3}
command -v "$python" >/dev/null || fail "no $python" "Python 3.11 or newer" "apt-get install python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version)" "Python 3.11 or newer" "install one and name it: make PYTHON=/path/to/python3"
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        fail "$python without ensurepip" "Python with its venv module" "apt-get install $package"
    fi
    echo "installing the Debian package $package"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get -qq update && apt-get -qq -y install --no-install-recommends "$package" >/dev/null; } ||
        fail "apt-get failed (above)" "Python with its venv module" "apt-get install $package"
fi

echo "Python environment: .venv from $lock"
for stamp in .venv/.stamp-*; do # what went in with another lock may have another version now
    other=${stamp#.venv/.stamp-}
    if [ ! -f "requirements/$other.txt" ] || [ "$(cat "$stamp")" != "$(stamp_of "$other")" ]; then rm -f "$stamp"; fi
done
rm -f ".venv/.stamp-$name"
if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
    "$python" -m venv --clear .venv
fi
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt ||
    fail "pip could not install uv (above)" "a reachable package index" "check the network and pip's settings"
.venv/bin/uv pip install $quiet --python .venv/bin/python --require-hashes -r "$lock" ||
    fail "uv could not install $lock (above)" "a reachable package index" "check the network and uv's settings"
.venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation \
    --editable . --editable training
echo "$wanted" >".venv/.stamp-$name"
if [ "$name" != local ]; then
    stamp_of local >.venv/.stamp-local
fi
