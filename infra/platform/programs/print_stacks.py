#!/usr/bin/env python3
# Prints the Python stacks of a pod's ranks, for `trainyard stacks`: on SIGUSR2 each rank writes them to a file.
#
# The file exists only if the process handles the signal, which would kill any other process. The first line of the file
# has the rank.
import os, pathlib, signal, tempfile, time
def handles(process):
    try:
        lines = pathlib.Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next(line.split()[1] for line in lines if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (signal.SIGUSR2 - 1) & 1)
def answer(process, file):
    before, text, end = file.stat().st_size, "", time.monotonic() + 5
    os.kill(process, signal.SIGUSR2)
    while time.monotonic() < end:
        time.sleep(0.1)
        now = file.read_bytes()[before:].decode(errors="replace")
        if now and now == text:
            return text
        text = now
    return text or "no answer within 5 s\n"
asked = []
for file in pathlib.Path(tempfile.gettempdir()).glob("trainyard-stacks-*"):
    process = int(file.name.rpartition("-")[2])
    if handles(process):
        asked.append((int(file.read_text(errors="replace").split("\n", 1)[0].split()[1]), process, file))
for rank, process, file in sorted(asked):
    print(f"rank {rank}, process {process}\n{answer(process, file)}", flush=True)
if not asked:
    print("no rank here answers: ranks do once they train, with trainyard_train")
