"""A real NFS server (nfs-ganesha), and clients of it, on a separate network.

The server's disk is a file, so that one can see what it would hold after a loss of power. Nothing is asked of
the kernel's NFS: server and clients are processes, whose folders go through FUSE.
"""

from __future__ import annotations

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
"""Of the server, on a network for documentation (RFC 5737)."""
_EXPORT: Final = "/training"
_DISK_MIB: Final = 64
_WITH_ME: Final = ("setpriv", "--pdeathsig", "KILL")
"""What is started ends with the tests, however they end."""
_FUSE: Final = re.compile(r"\bfuse(\.ko\b|$)", re.MULTILINE)
_NETWORK: Final = f"""
ip link set lo up
ip address add {ADDRESS}/32 dev lo
mount -t tmpfs none /run  # rpcbind's and the server's own
exec {" ".join(_WITH_ME)} rpcbind -f
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
    """A server that exports one disk, and can be killed and started again."""

    folder: Path
    _network: int
    """Process whose network it is on."""
    _process: subprocess.Popen[bytes] = field(init=False)

    @property
    def disk(self) -> Path:
        """The export as the server itself sees it."""
        return self.folder / "disk"

    def start(self) -> None:
        """Start it; returns when it answers."""
        log = self.folder / "server.log"
        log.write_text("")
        options = ("-F", "-f", self.folder / "ganesha.conf", "-L", log, "-p", self.folder / "ganesha.pid")
        self._process = subprocess.Popen([*self._inside("--mount"), "ganesha.nfsd", *map(str, options)])
        _wait_for(lambda: "NFS SERVER INITIALIZED" in log.read_text(), self._process, log)

    def kill(self) -> None:
        """End it in the midst of what it does."""
        self._process.kill()
        self._process.wait()

    @contextmanager
    def client(self, folder: Path, version: int = 3) -> Iterator[Path]:
        """Mount the export on a folder, as one node does."""
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
    def after_a_loss_of_power(self, folder: Path) -> Iterator[Path]:
        """The disk as a start would find it after a power failure of the server now."""
        folder.mkdir()
        image = folder.with_suffix(".image")
        shutil.copyfile(self.folder / "disk.image", image)
        with _mounted(image, folder):
            yield folder

    def _inside(self, *namespaces: str) -> list[str]:
        return ["nsenter", f"--target={self._network}", "--net", *namespaces, *_WITH_ME]


def kernel_has_fuse(root: Path = Path("/")) -> bool:
    """Whether the running kernel has FUSE, or a module of it that only has to be loaded."""
    modules = root / "lib" / "modules" / os.uname().release
    lists = (root / "proc" / "filesystems", modules / "modules.builtin", modules / "modules.dep")
    return any(_FUSE.search(each.read_text()) for each in lists if each.exists())


def _lacking() -> Iterator[str]:
    """What a machine whose kernel has FUSE can be given, and by whom."""
    if os.geteuid() != 0:
        yield "root, to mount"
    if missing := [name for name in ("ganesha.nfsd", "rpcbind", "fusermount3") if shutil.which(name) is None]:
        yield f"{', '.join(missing)}: `make nfs` installs them"
    if not Path("/dev/fuse").exists():
        yield "/dev/fuse: `modprobe fuse`, or in a container `mknod /dev/fuse c 10 229`"


@contextmanager
def nfs_server(folder: Path, *, syncs_folders: bool = True) -> Iterator[NfsServer]:
    """Serve an empty disk.

    Ganesha confirms names as soon as it has them, though NFS requires them on the disk first (RFC 1813,
    4.8): `syncs_folders` makes them durable, by the filesystem.
    """
    if lacking := list(_lacking()):
        pytest.fail(f"not there: {'; '.join(lacking)}")
    with ExitStack() as stack:
        disk, image = folder / "disk", folder / "disk.image"
        disk.mkdir()
        with image.open("wb") as file:
            file.truncate(_DISK_MIB << 20)
        _run("mkfs.ext4", "-q", "-F", str(image))
        options = ["commit=600", *(["dirsync"] if syncs_folders else [])]  # no timer saves what nobody synced
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
    """Whether anything on a process's network listens on a TCP port."""
    lines = Path(f"/proc/{process}/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[1].endswith(f":{port:04X}") for line in lines)


def _wait_for(
    condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path | None = None
) -> None:
    def output() -> str:
        return f"{process.args!r} does not start: {log.read_text()[-2000:] if log else ''}"

    wait_for(lambda: condition() or process.poll() is not None, output)
    assert process.poll() is None, output()
