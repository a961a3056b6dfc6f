#!/usr/bin/env python3
# preStop hook of the pods of an MPI job: sends SIGTERM to the pod's ranks, and waits until they have exited.
#
# With the pod, sshd would end and all ranks in it at once, and mpirun would call it a failure. A rank's own
# children have its environment, too: what counts is the first process that has it.
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
