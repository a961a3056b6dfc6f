#!/usr/bin/env python3
# Unpacks a job's code in images that lack gzip, tar or sha256sum: unpack_code.py FILE FOLDER DIGEST
#
# unpack_code.sh embeds this program in single quotes, so it may contain none.
import gzip, hashlib, io, sys, tarfile, time
file, folder, digest = sys.argv[1:]
try:
    with gzip.open(file) as packed:
        pack = packed.read()
    found = hashlib.sha256(pack).hexdigest()
    if found != digest:
        sys.exit(f"the store has other bytes by that name, sha256:{found}")
    with tarfile.open(fileobj=io.BytesIO(pack)) as archive:
        for each in archive:
            each.mtime = time.time()
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4
        archive.extractall(folder)
except (OSError, EOFError, tarfile.TarError) as error:
    sys.exit(f"cannot be unpacked: {error}")
