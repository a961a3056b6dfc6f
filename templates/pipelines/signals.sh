# shellcheck shell=bash
# Sourced: passes a cancellation on to the program that has to end cleanly. A runner signals only the shell of the
# step (GitHub: SIGINT, SIGTERM after 7.5 s, SIGKILL 2.5 s later) or its process group (GitLab: SIGTERM), and bash
# passes nothing on.
trap 'exit 130' INT TERM # between two programs: nothing more is started

forward() { # COMMAND…: run it; each signal reaches it once, as SIGINT, which engine and scripts handle
  local child code=0 cancelled=''
  set -m # a process group of its own, and SIGINT is not ignored there
  "$@" &
  child=$!
  set +m
  trap 'cancelled=yes; kill -INT "$child"' INT TERM
  # `wait` also returns for a signal.
  until code=0; wait "$child" || code=$?; ! kill -0 "$child" 2> /dev/null; do :; done
  trap 'exit 130' INT TERM
  [ -z "$cancelled" ] || exit 130
  return "$code"
}
