#!/usr/bin/env python3
# Receives a job's packed code from `trainyard run`, and stores it by digest: receive_code.py FOLDER [unpacked]
#
# Code is stored as it was sent, since each pod verifies and unpacks it. Packages are stored `unpacked`, as a read-only
# folder that all jobs import from, with the bytecode of the image's Python.
# `trainyard run` starts this program in the team's pod before the digest is known, and uses its standard input and
# output. The program reads a line with the digest. If the store has that pack, it answers `stored`. Otherwise it
# answers `send`, reads a line with the number of bytes and then the bytes, and answers `stored` once they match the
# digest. A transfer that breaks off stores nothing. What only a transfer needs is imported for that: a job
# waits for `stored`, and Python starts in half the time without.
import os, sys
DAY = 86400
def answer(word):
    print(word, flush=True)
def clean_up():
    for staged in folder.glob(".draft-*"):
        with contextlib.suppress(OSError):
            if time.time() - staged.stat().st_mtime > DAY:
                shutil.rmtree(staged) if staged.is_dir() else staged.unlink()
def line():
    found = b""
    while not found.endswith(b"\n"):
        part = os.read(0, 1)
        if not part:
            sys.exit("the connection broke off: nothing was stored")
        found += part
    return found.decode().strip()
def receive(out):
    left = int(line())
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
def unpack(made):
    import compileall, tarfile
    with tarfile.open(staged) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4
        for each in archive:
            each.mtime = time.time()
            archive.extract(each, made)
    staged.unlink()
    compileall.compile_dir(made, quiet=2, stripdir=made, prependdir=path)
    for each in (*made.rglob("*"), made):
        each.chmod(each.stat().st_mode & 0o555)
    made.rename(file)
digest = line().removeprefix("sha256:")
if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
    sys.exit("not stored: no digest was given")
is_unpacked = sys.argv[2:] == ["unpacked"]
path = f"{sys.argv[1]}/{digest}" + ("" if is_unpacked else ".tar.gz")
try:
    os.utime(path)  # the time of its last use
except FileNotFoundError:
    pass
else:
    answer("stored")
    sys.exit()
import contextlib, hashlib, pathlib, shutil, time, zlib
file = pathlib.Path(path)
folder = file.parent
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
    unpack(staged.with_name(f"{staged.name}.d")) if is_unpacked else staged.rename(file)
finally:
    staged.unlink(missing_ok=True)
answer("stored")
