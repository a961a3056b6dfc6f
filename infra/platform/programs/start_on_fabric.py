#!/usr/bin/env python3
# Start what the arguments say, unless its ranks would train over TCP on a pool that has a fabric.
#
# TRAINYARD_FABRIC has the class, and what it needs of this container: `file=package` for each file of the image,
# `device=` for each device file. Python loads libraries as NCCL does, so that what these need is looked for too. A job
# of one node needs no network, and one that sets NCCL_NET=Socket means TCP.
import ctypes, os, pathlib, sys
fabric, *needs = (os.environ.get("TRAINYARD_FABRIC") or "none").split()
def folders():
    maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
    return {str(pathlib.Path(line.split()[-1]).parent) for line in maps if ".so" in line}
def there(path):
    return any(pathlib.Path("/").glob(path.lstrip("/")))
def lack(file):
    if file.startswith("/"):
        return "" if there(file) else "not there"
    if "/" in file:
        return "" if any(there(f"{folder}/{file}") for folder in folders()) else "not beside its library"
    try:
        ctypes.CDLL(file)
    except OSError as error:
        return str(error).removeprefix(f"{file}: ")
    return ""
def lacks():
    for file, _, package in (need.partition("=") for need in needs):
        if why := lack(file):
            yield f"  {file}: {why}" + (f"; {package} has it" if package else "; the node gave this pod no device")
missing = list(lacks())
if missing and os.environ.get("PET_NNODES") == "1":
    os.environ.pop("NCCL_NET", None)
elif missing and os.environ.get("NCCL_NET", "").lower() != "socket":
    print(f"trainyard: ranks would train over TCP, on a pool with the fabric {fabric}. Missing here:", *missing,
        "Put it into the image (training/images has all of it; `trainyard images --check` looks for it), or say that",
        "TCP is meant: NCCL_NET=Socket among the job's variables.", sep="\n", file=sys.stderr)
    sys.exit(2)
os.execvp(sys.argv[1], sys.argv[1:])
