#!/usr/bin/env python3
# Unpacks the code of a job before its ranks start: unpack_code.py STORE FOLDER
#
# The first container of each pod of a job; TRAINYARD_CODE is the digest of the code, and is not set for a job
# that brings none. It works on a copy of its own, so that what was verified is what is unpacked.
import hashlib, os, pathlib, shutil, sys, tarfile, zlib
store, folder = map(pathlib.Path, sys.argv[1:])
digest = os.environ.get("TRAINYARD_CODE", "").removeprefix("sha256:")
def refuse(reason):
    text = f"trainyard: code sha256:{digest}: {reason}\n"
    sys.stderr.write(text)
    pathlib.Path(os.environ.get("TERMINATION_LOG", "/dev/termination-log")).write_text(text)
    sys.exit(2)
if not digest:
    sys.exit()
file, copy = store / f"{digest}.tar.gz", folder / ".pack.tar"
found, plain = hashlib.sha256(), zlib.decompressobj(zlib.MAX_WBITS | 16)
try:
    with file.open("rb") as packed, copy.open("wb") as out:
        while part := packed.read(1 << 20):
            text = plain.decompress(part)
            found.update(text)
            out.write(text)
except FileNotFoundError:
    refuse("not in the team's store; `trainyard run` puts it there")
except (OSError, zlib.error) as error:
    refuse(f"cannot be read: {error}")
if found.hexdigest() != digest or not plain.eof:
    refuse(f"the store has other bytes by that name, sha256:{found.hexdigest()}")
code = folder / "code"
shutil.rmtree(code, ignore_errors=True)  # of a start that was cut off
code.mkdir()
with tarfile.open(copy, encoding="utf-8", errors="surrogateescape") as tar:
    tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian 12's Python has none
    tar.extractall(code)  # noqa: S202 -- of a pack whose digest holds; as a user who is not root
copy.unlink()
