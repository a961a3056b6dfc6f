#!/usr/bin/env python3
# Prints the Python stacks of a pod's ranks, for `trainyard job traces`: on SIGUSR2 each rank writes them to a memory file.
#
# A process has the file only if it handles the signal, which would kill any other process; a fork may have its parent's
# file, which has the parent's number. The first line of the file has the rank.
import os, pathlib, signal, time
PROCESSES = pathlib.Path("/proc")
def handles(process):
    lines = (PROCESSES / process / "status").read_text().splitlines()
    caught = next(line.split()[1] for line in lines if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (signal.SIGUSR2 - 1) & 1)
def opened(process):
    for descriptor in (PROCESSES / process / "fd").iterdir():
        try:
            if str(descriptor.readlink()) == f"/memfd:trainyard-stacks-{process} (deleted)":
                return descriptor.open("rb")
        except FileNotFoundError:
            continue  # closed meanwhile
    return None
def answer(process, file):
    before, text, end = file.seek(0, os.SEEK_END), "", time.monotonic() + 5
    try:
        os.kill(process, signal.SIGUSR2)
    except ProcessLookupError:
        return "ended meanwhile\n"
    while time.monotonic() < end:
        time.sleep(0.1)
        file.seek(before)
        now = file.read().decode(errors="replace")
        if now and now == text:
            return text
        text = now
    return text or "no answer within 5 s\n"
asked = []
for each in PROCESSES.glob("[0-9]*"):
    try:
        file = opened(each.name)
        if file and handles(each.name):
            asked.append((int(file.readline().split()[1]), int(each.name), file))
    except OSError:
        continue  # it has ended, or is another user's
for rank, process, file in sorted(asked):
    print(f"rank {rank}, process {process}\n{answer(process, file)}", flush=True)
if not asked:
    print("no rank here answers: ranks do once they train, with trainyard_train")
