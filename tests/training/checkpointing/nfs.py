"""A real NFS server (nfs-ganesha) and its clients, in a separate network namespace.

The server's disk is an image file, so that a test can mount it as after a power failure. The kernel's NFS is
not needed: server and clients are processes, and the clients' folders are FUSE mounts.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from engine.paths import REPOSITORY
from tests.processes import wait_for

ADDRESS: Final = "192.0.2.1"
"""Address of the server, in a network for documentation (RFC 5737)."""
_EXPORT: Final = "/training"
_DISK_MIB: Final = 64
_KILLED_WITH_PARENT: Final = ("setpriv", "--pdeathsig", "KILL")
"""Prefix of commands: the process ends with the tests, even if those are killed."""
_FUSE: Final = re.compile(r"\bfuse(\.ko\b|$)", re.MULTILINE)
_NETWORK: Final = f"""
ip link set lo up
ip address add {ADDRESS}/32 dev lo
mount -t tmpfs none /run  # rpcbind's and the server's own
exec {" ".join(_KILLED_WITH_PARENT)} rpcbind -f
"""
_CONFIGURATION: Final = """
NFS_CORE_PARAM {{
    Protocols = 3, 4; MNT_Port = 20048; mount_path_pseudo = true;
    Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; Clustered = false;
}}
NFSv4 {{ Graceless = true; Only_Numeric_Owners = true; UseGetpwnam = true; RecoveryRoot = "{state}"; }}
NFS_KRB5 {{ Active_krb5 = false; }}
EXPORT {{
    Export_Id = 1; Path = "{disk}"; Pseudo = "{export}"; Protocols = 3, 4; Transports = TCP; SecType = sys;
    Access_Type = RW; Squash = No_Root_Squash;
    FSAL {{ Name = VFS; }}
}}
"""


@dataclass
class NfsServer:
    """A server that exports one disk, and can be killed and restarted."""

    folder: Path
    _network: int
    """Process in whose network namespace the server is."""
    _process: subprocess.Popen[bytes] = field(init=False)

    @property
    def disk(self) -> Path:
        """The exported folder, as the server's filesystem has it."""
        return self.folder / "disk"

    def start(self) -> None:
        """Start the server; returns when it responds."""
        log = self.folder / "server.log"
        log.write_text("")
        options = ("-F", "-f", self.folder / "ganesha.conf", "-L", log, "-p", self.folder / "ganesha.pid")
        self._process = subprocess.Popen([*self._inside("--mount"), "ganesha.nfsd", *map(str, options)])
        _wait_for(lambda: "NFS SERVER INITIALIZED" in log.read_text(), self._process, log)

    def kill(self) -> None:
        """Kill the server, in the middle of any request."""
        self._process.kill()
        self._process.wait()

    @contextmanager
    def client(self, folder: Path, version: int = 3) -> Iterator[Path]:
        """Mount the export on a folder, as a node does."""
        folder.mkdir()
        program = [sys.executable, "-m", "tests.training.checkpointing.nfs_client"]
        arguments = [str(version), f"{ADDRESS}:{_EXPORT}", str(folder)]
        environment = os.environ | {"FUSE_LIBRARY_NAME": "fuse3"}
        process = subprocess.Popen([*self._inside(), *program, *arguments], cwd=REPOSITORY, env=environment)
        try:
            _wait_for(folder.is_mount, process)
            yield folder
        finally:
            process.kill()
            process.wait()
            _run("umount", "--lazy", str(folder))

    @contextmanager
    def after_power_failure(self, folder: Path) -> Iterator[Path]:
        """Mount the disk as it would be if the server's power failed now."""
        folder.mkdir()
        image = folder.with_suffix(".image")
        shutil.copyfile(self.folder / "disk.image", image)
        with _mounted(image, folder):
            yield folder

    def _inside(self, *namespaces: str) -> list[str]:
        return ["nsenter", f"--target={self._network}", "--net", *namespaces, *_KILLED_WITH_PARENT]


def kernel_has_fuse(root: Path = Path("/")) -> bool:
    """Whether the running kernel has FUSE, or a FUSE module that it can load."""
    modules = root / "lib" / "modules" / os.uname().release
    lists = (root / "proc" / "filesystems", modules / "modules.builtin", modules / "modules.dep")
    return any(_FUSE.search(each.read_text()) for each in lists if each.exists())


def _lacking() -> Iterator[str]:
    """Name what is missing on a host whose kernel has FUSE, and how to get it."""
    if os.geteuid() != 0:
        yield "root, to mount"
    if missing := [name for name in ("ganesha.nfsd", "rpcbind", "fusermount3") if shutil.which(name) is None]:
        yield f"{', '.join(missing)}: `make nfs` installs them"
    if not Path("/dev/fuse").exists():
        yield "/dev/fuse: `modprobe fuse`, or in a container `mknod /dev/fuse c 10 229`"


@contextmanager
def nfs_server(folder: Path, *, syncs_folders: bool = True) -> Iterator[NfsServer]:
    """Serve an empty disk.

    Ganesha confirms names before they are durable, although NFS requires them on the disk first (RFC 1813,
    4.8). With `syncs_folders` its filesystem makes them durable.
    """
    if lacking := list(_lacking()):
        pytest.fail(f"missing: {'; '.join(lacking)}")
    with ExitStack() as stack:
        disk, image = folder / "disk", folder / "disk.image"
        disk.mkdir()
        with image.open("wb") as file:
            file.truncate(_DISK_MIB << 20)
        _run("mkfs.ext4", "-q", "-F", str(image))
        options = ["commit=600", *(["dirsync"] if syncs_folders else [])]  # no timer syncs during a test
        stack.enter_context(_mounted(image, disk, *options))
        state = folder / "state"
        state.mkdir()
        text = _CONFIGURATION.format(disk=disk, export=_EXPORT, state=state)
        (folder / "ganesha.conf").write_text(text)
        network = subprocess.Popen(["unshare", "--net", "--mount", "sh", "-euc", _NETWORK])
        stack.callback(_end, network)
        _wait_for(lambda: _listens(network.pid, 111), network)
        server = NfsServer(folder, network.pid)
        server.start()
        stack.callback(server.kill)
        yield server


@pytest.fixture(scope="module")
def nfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NfsServer]:
    with nfs_server(tmp_path_factory.mktemp("nfs")) as server:
        yield server


@contextmanager
def _mounted(image: Path, folder: Path, *options: str) -> Iterator[None]:
    _run("mount", "-o", ",".join(("loop", *options)), str(image), str(folder))
    try:
        yield
    finally:
        _run("umount", "--lazy", str(folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _listens(process: int, port: int) -> bool:
    """Whether anything in the network namespace of a process listens on a TCP port."""
    lines = Path(f"/proc/{process}/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[1].endswith(f":{port:04X}") for line in lines)


def _wait_for(
    condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path | None = None
) -> None:
    def output() -> str:
        return f"{process.args!r} does not start: {log.read_text()[-2000:] if log else ''}"

    wait_for(lambda: condition() or process.poll() is not None, output)
    assert process.poll() is None, output()
