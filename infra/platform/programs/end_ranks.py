#!/usr/bin/env python3
# preStop hook of an MPI job's pods: sends SIGTERM to the pod's ranks, and waits until they have exited.
#
# Without the hook, sshd and all its ranks would end at once, and mpirun would report a failure. Child processes of a
# rank inherit its environment, so only the topmost process with the variable is a rank.
import contextlib, os, pathlib, signal, time
def is_rank(process):
    return b"OMPI_COMM_WORLD_RANK=" in pathlib.Path(f"/proc/{process}/environ").read_bytes()
def parent(process):
    return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1]
def ranks():
    for process in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if is_rank(process) and not is_rank(parent(process)):
                yield int(process)
for process in list(ranks()):
    with contextlib.suppress(OSError):
        os.kill(process, signal.SIGTERM)
while list(ranks()):
    time.sleep(0.1)
