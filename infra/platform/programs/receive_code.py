#!/usr/bin/env python3
# Takes a pack of code into the team's store, by its digest: receive_code.py FOLDER sha256:DIGEST
#
# `trainyard run` starts it in the team's pod for that, and talks to it over its standard input and output. It
# answers `stored` where the pack is there; else `send`, takes a line with the number of bytes and these, and
# answers `stored` once they are what the digest says. What breaks off leaves nothing that counts.
import contextlib, hashlib, os, pathlib, sys, time, zlib
folder, digest = pathlib.Path(sys.argv[1]), sys.argv[2].removeprefix("sha256:")
file = folder / f"{digest}.tar.gz"
DAY = 86400
def answer(word):
    print(word, flush=True)
def clean_up():
    for staged in folder.glob(".draft-*"):
        with contextlib.suppress(OSError):
            if time.time() - staged.stat().st_mtime > DAY:
                staged.unlink()
def number():
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 1)
        if not part:
            sys.exit("the connection broke off: nothing was stored")
        line += part
    return int(line)
def receive(out):
    left = number()
    found, plain = hashlib.sha256(), zlib.decompressobj(zlib.MAX_WBITS | 16)
    while left:
        part = os.read(0, min(left, 1 << 20))
        if not part:
            sys.exit("the connection broke off: nothing was stored")
        left -= len(part)
        out.write(part)
        found.update(plain.decompress(part))
    if not plain.eof or found.hexdigest() != digest:
        sys.exit(f"not stored: these bytes are sha256:{found.hexdigest()}")
if file.exists():
    os.utime(file)  # the time of its last use
    answer("stored")
    sys.exit()
folder.mkdir(parents=True, exist_ok=True, mode=0o750)
clean_up()
staged = folder / f".draft-{os.getpid()}-{time.time_ns()}"
answer("send")
try:
    with staged.open("xb") as out:
        receive(out)
        out.flush()
        os.fsync(out.fileno())
    staged.chmod(0o440)
    staged.rename(file)
finally:
    staged.unlink(missing_ok=True)
answer("stored")
