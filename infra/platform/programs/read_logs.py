#!/usr/bin/env python3
# Prints a job's logs from the files that the log collector has stored, for `trainyard logs`.
#
# Arguments: job; Unix time before which a pod belongs to another job; `show`, `follow` or `list`; node and attempt
# (-1: all). An output line has attempt, node, Kubernetes node, time and text; `list` prints one line per pod.
# Files hold lines of the container runtime (CRI): time, stream, P (continued on the next line) or F, text. The
# collector may copy two rotated files at once, and copies again after a restart. A file therefore consists of runs of
# lines with rising times, which are merged, and each line is printed once.
import heapq
import os
import pathlib
import re
import select
import sys
import time
from typing import Any

LOGS = "/logs"
POLL_SECONDS = 0.3
TAIL = 1 << 16
out = sys.stdout.buffer


class Pod:
    """The files of one pod's main container."""

    def __init__(self, folder, role, index):
        self.name, _, self.host = folder.name.split("_", 2)
        self.role, self.node, self.attempt, self.offsets, self.rests = role, index, 0, {}, {}
        files = sorted(folder.glob("node.*.log"), key=lambda file: int(file.name.split(".")[1]))
        self.files = files or sorted(folder.glob("*.log"))
        self.first = min((first for file in self.files if (first := first_time(file))), default=b"")


def moment_of(line):
    """Return the time of a line, in UTC: the runtime drops zeros at its end, so texts compare without the Z."""
    return line.split(b" ", 1)[0].rstrip(b"Z")


def first_time(file):
    return next((moment_of(line) for _, line in raw_lines(file, 0, file.stat().st_size)), b"")


def pods_of(job, since):
    """Return the job's pods with node and attempt: an attempt ends where a node of it writes anew."""
    form = re.compile(re.escape(job) + r"-(node|launcher)-\d+-(\d+)-[a-z0-9]{5}_[^_]+_[^_]+")
    pods = []
    for folder in pathlib.Path(LOGS).iterdir():
        if found := form.fullmatch(folder.name):
            pods.append(Pod(folder, found[1], int(found[2])))
    after = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(since)).encode()
    pods = sorted((pod for pod in pods if pod.first >= after and pod.first), key=lambda pod: pod.first)
    workers = any(pod.role == "launcher" for pod in pods)  # an MPI job's launcher is its first node
    attempt, seen = 0, set[int]()
    for pod in pods:
        pod.node += workers and pod.role == "node"
        if pod.node in seen:
            attempt, seen = attempt + 1, set()
        seen.add(pod.node)
        pod.attempt = attempt
    return pods


def raw_lines(file, start, end):
    """Yield each whole line with the position where it ends."""
    with file.open("rb") as opened:
        opened.seek(start)
        for line in opened:
            start += len(line)
            if start > end or not line.endswith(b"\n"):
                return
            if line.strip():
                yield start, line


def runs_of(file, end):
    """Return first time, begin and end of each stretch of lines whose times do not fall."""
    runs: list[list[Any]] = []
    last = b""
    for stop, line in raw_lines(file, 0, end):
        moment = moment_of(line)
        if not runs or moment < last:
            runs.append([moment, stop - len(line), stop])
        last, runs[-1][2] = moment, stop
    return sorted(runs)


def lines_of(file, end):
    """Merge a file's runs, and leave out what stands in it twice."""
    waiting, now, same = runs_of(file, end)[::-1], b"", set[bytes]()
    active: list[tuple[Any, ...]] = []
    while waiting or active:
        while waiting and (not active or waiting[-1][0] <= active[0][0]):
            moment, start, stop = waiting.pop()
            run = raw_lines(file, start, stop)
            heapq.heappush(active, (moment, *next(run), run))
        moment, _, line, run = heapq.heappop(active)
        if (following := next(run, None)) is not None:
            heapq.heappush(active, (moment_of(following[1]), *following, run))
        if moment != now:
            now, same = moment, set()
        if line not in same:
            same.add(line)
            yield line


def whole(pod, lines):
    """Join what the runtime has cut; yield time and text of each line that the container wrote."""
    for line in lines:
        moment, stream, tag, text = (*line[:-1].split(b" ", 3), b"")[:4]
        cut = pod.rests.pop(stream, b"") + text
        if tag.startswith(b"P"):
            pod.rests[stream] = cut
        else:
            yield moment.rstrip(b"Z"), cut


def show(pod, moment, text):
    out.write(b"%d %d %s %s %s\n" % (pod.attempt, pod.node, pod.host.encode(), moment, text))


def stored_logs(pod):
    """Yield all of a pod's lines up to now, and remember where that was."""
    for file in pod.files:
        pod.offsets[file] = end = file.stat().st_size
        for moment, text in whole(pod, lines_of(file, end)):
            yield moment, pod.attempt, pod.node, pod, text


def show_stored(pods):
    for attempt in sorted({pod.attempt for pod in pods}):
        streams = [stored_logs(pod) for pod in pods if pod.attempt == attempt]
        for moment, _, _, pod, text in heapq.merge(*streams, key=lambda line: line[:3]):
            show(pod, moment, text)


def show_new(pod):
    for file in pod.files:
        for stop, line in raw_lines(file, pod.offsets.get(file, 0), file.stat().st_size):
            pod.offsets[file] = stop
            for moment, text in whole(pod, [line]):
                show(pod, moment, text)


def follow(chosen):
    """Print what comes, until nobody listens: the standard input has ended."""
    known = dict[str, Pod]()
    while True:
        for pod in chosen():
            before = known.setdefault(pod.name, pod)
            before.files = pod.files
            show_new(before)
        out.flush()
        ready, _, _ = select.select([sys.stdin], (), (), POLL_SECONDS)
        if ready and not os.read(sys.stdin.fileno(), 1):
            return


def main(job, since, mode, node="-1", attempt="-1"):
    def chosen():
        wanted = {"-1": lambda _: True}
        nodes = wanted.get(node, lambda number: number == int(node))
        attempts = wanted.get(attempt, lambda number: number == int(attempt))
        return [pod for pod in pods_of(job, float(since)) if nodes(pod.node) and attempts(pod.attempt)]

    if mode == "list":
        for pod in chosen():
            out.write(f"{pod.attempt} {pod.node} {pod.host} {pod.first.decode()} {pod.name}\n".encode())
        return
    if mode == "follow":
        follow(chosen)
    else:
        show_stored(chosen())


if __name__ == "__main__":
    main(*sys.argv[1:])
