"""`check_fabric.sh`, the postStart hook of a job's containers, run in a chroot by the shell in it.

The root has a shell, its libraries, and small real libraries with the names of a fabric's.
"""

import os
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import catalog
from infra.platform.fabric import FABRIC_SIGNAL, needs
from infra.platform.jobs.runtimes import EX_NO_FABRIC
from infra.platform.programs import program
from tests.processes import TIMEOUT_SECONDS, capture
from tests.tables import table

SHELLS = ("dash", "bash")
"""/bin/sh of Debian and of Red Hat. BusyBox's ash was tested by hand, since hosts of CI may lack it."""
USER = () if os.geteuid() == 0 else ("--user", "--map-root-user")
SYSTEM = f"{os.environ['PATH']}:/usr/sbin:/sbin"
UNSHARE, NSENTER, CHROOT = (str(shutil.which(name, path=SYSTEM)) for name in ("unshare", "nsenter", "chroot"))
CHECK = ["/bin/sh", "-c", program("check_fabric.sh"), "check_fabric"]
CONDA = Path("opt/conda")


def linked(path: Path) -> list[Path]:
    """Return the libraries of a program, and its loader."""
    output = capture(["ldd", path], check=True).stdout
    return [Path(found) for found in re.findall(r"(/\S+) \(0x", output)]


class ContainerRoot:
    """The root filesystem of a container, in a folder."""

    def __init__(self, folder: Path, shell: str) -> None:
        self.folder = folder
        program = Path(shutil.which(shell) or "/bin/dash")
        for path in linked(program):
            self.copy(path, str(path).lstrip("/"))
        self.copy(program, "bin/sh")
        (folder / "proc").mkdir()
        self.libc = next(path for path in linked(program) if path.name.startswith("libc.so"))

    def copy(self, source: Path, path: str) -> Path:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
        return target

    def library(self, name: str, folder: str = "", depends_on: str = "") -> Path:
        """Add a shared library that the loader accepts; `depends_on`: the dependency in place of libc."""
        where = folder or str(self.libc.parent).lstrip("/")
        path = self.copy(self.libc.with_name("libdl.so.2"), f"{where}/{name}")
        if depends_on:
            assert len(depends_on) == len("libc.so.6")
            path.write_bytes(path.read_bytes().replace(b"libc.so.6", depends_on.encode()))
        return path

    def file(self, path: str) -> None:
        target = self.folder / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()

    def fill(self, fabric: str) -> None:
        """Add all that a fabric class needs from the image and from the node."""
        for need in needs(fabric).split()[1:]:
            file, _, number = need.partition("=")
            for name in {file.replace("*", str(n)) for n in range(int(number) if number.isdigit() else 1)}:
                if file.startswith("/"):
                    self.file(name)
                elif not file.startswith(("env:", "locked-memory", "nccl:")):
                    self.library(name)

    def check(self, fabric: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run the check with the variables of the fabric's pods, and these."""
        environment = {"PATH": "/usr/bin:/bin", "TRAINYARD_FABRIC": needs(fabric), "PET_NNODES": "2"}
        environment |= catalog.fabric(fabric).environment | variables
        alone = [UNSHARE, *USER, "--fork", "--pid", "--mount", f"--mount-proc={self.folder}/proc"]
        return capture([*alone, CHROOT, str(self.folder), *CHECK], env=environment, timeout=TIMEOUT_SECONDS)


@pytest.fixture(params=SHELLS)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> ContainerRoot:
    return ContainerRoot(tmp_path / "root", request.param)


FABRICS = [each.name for each in catalog.fabrics() if "NCCL_NET" in each.environment or each.nvlink_domain]
KINDS = ["ib-ndr", "roce-sriov", "efav3", "roce", "tcpxo"]
"""A fabric class of each network: InfiniBand, RoCE, EFA, Google Cloud's gIB and TCPXO."""


def test_every_class_with_a_network_is_checked() -> None:
    assert [fabric.name for fabric in catalog.fabrics() if needs(fabric.name)] == FABRICS
    assert '"' not in "".join(map(needs, FABRICS))  # sshd_config has no way to write one
    assert "/bin/bash" not in "".join(map(needs, FABRICS)), "a job's own image needs none"


@pytest.mark.parametrize("fabric", KINDS)
def test_an_image_that_has_all_files_of_its_fabric_passes(root: ContainerRoot, fabric: str) -> None:
    root.fill(fabric)
    if "LD_LIBRARY_PATH" in catalog.fabric(fabric).environment:
        libraries = root.folder / "usr/local/nvidia/lib64"
        libraries.mkdir(parents=True)
        shutil.move(root.folder / str(root.libc.parent).lstrip("/") / "libnccl-net.so", libraries)
    done = root.check(fabric)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("fabric", KINDS)
def test_an_image_and_a_pod_with_nothing_are_told_all_they_lack(root: ContainerRoot, fabric: str) -> None:
    found, done = catalog.fabric(fabric), root.check(fabric)
    assert done.returncode == 1
    assert f"would leave the fabric {fabric} of their pool, or use a part of it:" in done.stderr
    for each in found.image_files:
        named = re.search(
            rf"(?m)^  {re.escape(each.file)}: .*; install the package {each.package}$", done.stderr
        )
        assert bool(named) == each.for_ranks, done.stderr
    for file in found.node_files:
        assert re.search(
            rf"(?m)^  {re.escape(file)}: .*; the node provides 0 of \d+ to this pod$", done.stderr
        )
    assert "NCCL_NET=Socket" in done.stderr
    assert "TRAINYARD_FABRIC=none" in done.stderr


def test_only_the_missing_file_is_named(root: ContainerRoot) -> None:
    root.fill("ib-ndr")
    for path in (root.folder / "etc/libibverbs.d/mlx5.driver", root.folder / "dev/infiniband/uverbs0"):
        path.unlink()
        named = root.check("ib-ndr").stderr
        assert [line.split(":")[0].split("*")[0].strip() for line in named.splitlines()[1:-2]] == [
            "/" + str(path.relative_to(root.folder)).removesuffix("0")
        ]
        path.touch()
    library = root.folder / str(root.libc.parent).lstrip("/") / "libibverbs.so.1"
    library.unlink()
    assert "  libibverbs.so.1: cannot open shared object file; install the package libibverbs1" in (
        root.check("ib-ndr").stderr
    )
    root.library("libibverbs.so.1", depends_on="libnl.so3")
    assert "  libibverbs.so.1: libnl.so3: cannot open shared object file" in root.check("ib-ndr").stderr


def test_a_plugin_whose_cuda_comes_with_pythons_packages_passes(root: ContainerRoot) -> None:
    root.fill("efav3")
    root.library("libnccl-net-ofi.so", depends_on="libcudart")
    assert root.check("efav3").returncode == 0


def test_libraries_of_conda_are_found_beside_its_programs(root: ContainerRoot) -> None:
    for number in range(8):
        root.file(f"/dev/infiniband/uverbs{number}")
    root.file(f"/{CONDA}/etc/libibverbs.d/mlx5.driver")
    for name in ("libibverbs.so.1", "libibverbs/libmlx5-rdmav34.so"):
        root.library(name, f"{CONDA}/lib")
    assert root.check("ib-ndr", PATH=f"/{CONDA}/bin:/bin").returncode == 0
    assert root.check("ib-ndr").returncode == 1


@pytest.mark.parametrize("variables", table(__file__))
def test_a_job_that_overrides_it_or_has_1_node_passes(root: ContainerRoot, variables: dict[str, str]) -> None:
    done = root.check("ib-ndr", **variables)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_mpi_job_whose_pods_lack_their_number_is_checked(root: ContainerRoot) -> None:
    assert root.check("ib-ndr", PET_NNODES="").returncode == 1


@contextmanager
def pod(root: ContainerRoot) -> Iterator[subprocess.Popen[str]]:
    """A container in one process namespace with a pause container, on a node with 1 MiB of memory."""
    with subprocess.Popen([UNSHARE, "--fork", "--pid", "sleep", "600"]) as pause:
        first = _child(pause.pid)
        (root.folder / "meminfo").write_text("MemTotal: 1024 kB\n")
        mounts = (
            f"mount --bind {root.folder}/meminfo {root.folder}/proc/meminfo && exec {CHROOT} {root.folder}"
        )
        proc = [UNSHARE, "--mount", f"--mount-proc={root.folder}/proc", "sh", "-c", f'{mounts} "$@"', "sh"]
        shell = ["/bin/sh", "-c", 'echo up >&2; /bin/sh -c "read -r _"; exit 0']
        main = subprocess.Popen(
            [NSENTER, f"--target={first}", "--pid", *proc, *shell],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert main.stderr
        assert main.stderr.readline() == "up\n"
        try:
            yield main
        finally:
            for each in (main, pause):
                each.send_signal(signal.SIGTERM)
            os.kill(first, signal.SIGKILL)
            main.wait(TIMEOUT_SECONDS)


def _child(process: int) -> int:
    children = Path(f"/proc/{process}/task/{process}/children")
    while not children.read_text().split():
        os.sched_yield()
    return int(children.read_text().split()[0])


def hooked(main: subprocess.Popen[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the check beside a container's first process, as the kubelet runs the hook."""
    enter = [NSENTER, f"--target={_child(main.pid)}", "--pid", "--mount", "--root", "--wd"]
    return capture(
        [*enter, *CHECK, str(FABRIC_SIGNAL)],
        env={"PATH": "/bin", "NCCL_NET": "IB", "TRAINYARD_FABRIC": needs("ib-ndr"), **variables},
        timeout=TIMEOUT_SECONDS,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="enters the namespaces of a container, as a kubelet does")
def test_a_container_that_is_refused_ends_with_the_reason_in_its_log(tmp_path: Path) -> None:
    root = ContainerRoot(tmp_path / "root", "dash")
    root.file("/dev/termination-log")
    with pod(root) as main:
        hook = hooked(main)
        assert main.wait(TIMEOUT_SECONDS) == -FABRIC_SIGNAL, (
            "the container's first process has ended, and not by a TERM"
        )
        assert EX_NO_FABRIC == 128 + FABRIC_SIGNAL == 192
    assert main.stderr
    log = main.stderr.read()
    assert hook.returncode != 0
    assert "fabric ib-ndr of" in log
    assert (root.folder / "dev/termination-log").read_text() == log


@pytest.mark.skipif(os.geteuid() != 0, reason="enters the namespaces of a container, as a kubelet does")
def test_a_job_on_a_node_with_a_low_limit_of_locked_memory_is_restarted(tmp_path: Path) -> None:
    """The limit is raised soon after a node has joined, so the signal is not that of a permanent failure."""
    root = ContainerRoot(tmp_path / "root", "dash")
    root.fill("ib-ndr")
    root.file("/dev/termination-log")
    with pod(root) as main:
        resource.prlimit(_child(main.pid), resource.RLIMIT_MEMLOCK, (2**20, 2**20))
        assert hooked(main).returncode == 0
        resource.prlimit(_child(main.pid), resource.RLIMIT_MEMLOCK, (2**20 - 1024, 2**20 - 1024))
        hook = hooked(main)
        assert main.wait(TIMEOUT_SECONDS) == 1 - FABRIC_SIGNAL
    assert "locked memory: the node allows 1047552 bytes, RDMA needs all of its memory" in hook.stderr
