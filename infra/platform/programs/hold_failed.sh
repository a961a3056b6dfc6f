#!/bin/sh
# Runs a command, and holds its pod for a while after a failure: hold_failed.sh SECONDS COMMAND [ARGUMENT …]
#
# `trainyard shell` then finds files, /dev/shm and the node as they were at the failure. SIGTERM (preemption, drain,
# cancellation) ends the hold. After a whole hold the exit code is 193, with which the job is not restarted; else it is
# the command's own.
seconds=$1
shift
leaving='' ranks=''
trap 'leaving=1; kill -TERM "$ranks" 2>/dev/null' TERM
"$@" &
ranks=$!
[ -z "$leaving" ] || kill -TERM "$ranks" 2>/dev/null # it came before the command did
while :; do # `wait` returns at a signal too, while the command still runs
    wait "$ranks"
    code=$?
    kill -0 "$ranks" 2>/dev/null || break
done
if [ -n "$leaving" ] || [ "$code" = 0 ] || [ "$code" = 75 ]; then
    exit "$code"
fi
echo "trainyard: failed with exit code $code; this pod is held for $seconds s: trainyard shell ${TRAINYARD_JOB:-JOB}" >&2
echo "trainyard: end it: trainyard cancel ${TRAINYARD_JOB:-JOB}" >&2
left=$seconds
while [ "$left" -gt 0 ] && [ -z "$leaving" ]; do
    sleep 1 & # a signal ends `wait`, and no program that runs in the foreground
    wait "$!"
    left=$((left - 1))
done
[ -z "$leaving" ] || exit "$code"
said=${TERMINATION_LOG:-/dev/termination-log}
[ -s "$said" ] || echo "failed with exit code $code; held for $seconds s" 2>/dev/null >"$said"
exit 193
