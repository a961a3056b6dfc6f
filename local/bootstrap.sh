#!/bin/sh
# Makes .venv hold what the extras `local`, `ui` and another one of pyproject.toml need, in the versions of the lock,
# Trainyard itself and its training package: bootstrap.sh local|dev|CLOUD [--verbose]
# Costs nothing where it does already: a stamp in .venv holds the hash of all that went in. All extras have one lock, so
# one can be installed over another.
set -eu
cd "$(dirname "$0")/.."
name=$1
quiet=--quiet
if [ "${2:-}" = --verbose ]; then quiet=; fi
lock=requirements/host.txt

fail() { # what was got, what is allowed, what to do
    printf '%s\n  got:     %s\n  allowed: %s\n  fix:     %s\n' "Python environment" "$1" "$2" "$3" >&2
    exit 3
}

case $(uname) in
Darwin) install='brew install python' ;;
*) install='apt-get install python3' ;;
esac
python=${PYTHON:-python3}
command -v "$python" >/dev/null || fail "no $python" "Python 3.11 or newer" "$install"

mkdir -p .trainyard
if [ -z "${BOOTSTRAP_LOCKED:-}" ]; then # a second run waits, and then finds it done; macOS has no flock(1)
    export BOOTSTRAP_LOCKED=1
    exec "$python" -c 'import fcntl, os, sys
lock = os.open(".trainyard/bootstrap.lock", os.O_RDWR | os.O_CREAT)
os.set_inheritable(lock, True)
fcntl.flock(lock, fcntl.LOCK_EX)
os.execvp("sh", ["sh", *sys.argv[1:]])' local/bootstrap.sh "$@"
fi
wanted=$(cat pyproject.toml training/pyproject.toml $lock local/bootstrap.sh local/locked.py |
    "$python" -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())')
if [ -f ".venv/.stamp-$name" ] && [ "$(cat ".venv/.stamp-$name")" = "$wanted" ] && .venv/bin/python -c ''; then
    exit 0
fi

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

echo "Python environment: $name in .venv from $lock"
for stamp in .venv/.stamp-*; do # what went in with another lock may have another version now
    if [ "$stamp" = ".venv/.stamp-$name" ] || [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then rm -f "$stamp"; fi
done
if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
    "$python" -m venv --clear .venv
fi
"$python" local/locked.py $lock uv >.trainyard/uv.txt
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r .trainyard/uv.txt ||
    fail "pip could not install uv (above)" "a reachable package index" "check the network and pip's settings"
.venv/bin/uv pip install $quiet --python .venv/bin/python --require-hashes -c $lock -r pyproject.toml \
    --extra local --extra ui --extra "$name" --group build ||
    fail "uv could not install $lock (above)" "a reachable package index" "check the network and uv's settings"
.venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation \
    --editable . --editable training
echo "$wanted" >".venv/.stamp-$name"
if [ "$name" != local ]; then
    echo "$wanted" >.venv/.stamp-local
fi
