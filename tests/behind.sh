#!/bin/sh
# Runs a command on what others leave of the processors: behind.sh COMMAND [ARGUMENT...]
# By a control group: `nice` alone does little, since the kernel shares time between sessions first (autogroups),
# and much of what the tests start has a session of its own. Whoever may not make a group gets `nice` alone.
set -u
trap : INT # the command ends by it, too, and this waits for that

leave() { # what ends a little later than its test still has the group
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        rmdir "$group" 2>/dev/null && return
        sleep 1
    done
}

for top in /sys/fs/cgroup/cpu /sys/fs/cgroup; do # versions 1 and 2
    group=$top/trainyard-behind-$$
    [ -w "$top/cgroup.procs" ] && mkdir "$group" 2>/dev/null || continue
    trap leave EXIT
    if [ -e "$group/cpu.shares" ]; then
        echo 100 >"$group/cpu.shares" # of 1024
    elif [ -e "$group/cpu.weight" ]; then
        echo 10 >"$group/cpu.weight" # of 100
    else
        rmdir "$group"
        continue
    fi
    (echo 0 >"$group/cgroup.procs" && exec nice -n 10 "$@")
    exit $?
done
exec nice -n 10 "$@"
