"""Checks that this host can run the embedded cluster, and reports every problem at once."""

import shutil
from collections.abc import Collection, Iterator
from ipaddress import IPv4Network
from pathlib import Path

from infra.errors import HostError, Problem, TrainyardError
from local.cluster import cgroups, network_policies
from local.cluster.commands import PROGRAM_PATH, program, run
from local.cluster.config import ClusterConfig
from local.cluster.containerd import CNI_PLUGINS
from local.cluster.contracts import ArtifactFinder
from local.cluster.layout import VERSION, Layout
from local.cluster.machine import ClusterMachine
from local.cluster.network import host_routes, run_folders
from local.cluster.node import SHARED_FOLDERS
from local.cluster.privileges import check_privileges, missing_privileges

BINARIES = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "coredns",
    network_policies.PROGRAM,
)
PROGRAMS = {
    "etcd": "etcd-server",
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    "nft": "nftables",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
}
"""Program → Debian package with the program."""
PLUGINS = ("ptp", "host-local", "loopback")
INOTIFY_LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
INOTIFY_PER_NODE = 8
INOTIFY_PER_CONTROL_PLANE = 12
"""Inotify instances of a control plane, counted on a running cluster, plus one per process as a reserve."""
CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
FREE_GIB = 5


def check(config: ClusterConfig, layout: Layout, artifacts: ArtifactFinder, link: str) -> None:
    """Raise HostError with all that is missing or in the way; changes nothing.

    `link` is our own interface on the host, which may exist from an earlier run.
    """
    problems = [
        *missing_privileges(),
        *_programs(),
        *_artifacts(config, artifacts),
        *_inotify(config, layout),
        *_host(layout, IPv4Network(config.node_cidr), Path(config.data_dir), link),
    ]
    if problems:
        raise HostError(problems)


def check_host(layout: Layout, *, node_cidr: IPv4Network, data_dir: Path, link: str) -> None:
    """Raise HostError with all that no toolchain can put right; changes nothing."""
    check_privileges()
    if problems := list(_host(layout, node_cidr, data_dir, link)):
        raise HostError(problems)


def _host(layout: Layout, node_cidr: IPv4Network, data_dir: Path, link: str) -> Iterator[Problem]:
    yield from _folders(data_dir, layout.run)
    yield from _kernel()
    yield from _addresses(node_cidr, link, layout.run)
    yield from _space(layout.run)
    yield from _earlier_run(layout)


def _programs() -> Iterator[Problem]:
    for name, package in PROGRAMS.items():
        if shutil.which(name, path=PROGRAM_PATH) is None:
            yield _missing(f"program {name}", PROGRAM_PATH, package)
    for name in PLUGINS:
        if not (CNI_PLUGINS / name).exists():
            yield _missing(f"CNI plugin {name}", str(CNI_PLUGINS), "containernetworking-plugins")


def _missing(what: str, where: str, package: str) -> Problem:
    return Problem(what, "not found", f"in {where}", f"apt-get install {package}")


def _artifacts(config: ClusterConfig, artifacts: ArtifactFinder) -> Iterator[Problem]:
    images = sorted({"pause", *(image for node in config.nodes for image in node.images)})
    for name in [*(f"binary/{name}" for name in BINARIES), *(f"image/{name}" for name in images)]:
        try:
            found = artifacts.path(name)
        except KeyError:
            yield Problem(
                name, "an unknown artifact", "one of versions.yaml", "correct the name in the stack file"
            )
        except HostError as error:
            yield from error.problems
        else:
            if name == "binary/kubelet":
                yield from _version(config.kubernetes_version, run(str(found), "--version").split()[-1])
            if name == f"binary/{network_policies.PROGRAM}":
                yield from _packet_queue(found)


def _version(wanted: str, found: str) -> Iterator[Problem]:
    if found.removeprefix("v") != wanted.removeprefix("v"):
        fix = "set the version that versions.yaml pins"
        yield Problem("cluster.kubernetesVersion", wanted, found, fix)


def _packet_queue(enforcer: Path) -> Iterator[Problem]:
    """Let what enforces NetworkPolicies try its rules, in a temporary network namespace."""
    try:
        run(program("unshare"), "--net", str(enforcer), "--check", "--pods=192.0.2.0/24")
    except TrainyardError as error:
        needs = "nftables with the target NFQUEUE (CONFIG_NETFILTER_XT_TARGET_NFQUEUE, NFT_COMPAT)"
        fix = "modprobe -a nf_tables nft_compat xt_NFQUEUE nfnetlink_queue nf_conntrack"
        yield Problem("kernel", error.problems[0].got, needs, fix)


def _folders(data_dir: Path, run_folder: Path) -> Iterator[Problem]:
    for what, folder in (("cluster.dataDir", data_dir), ("TRAINYARD_STATE", run_folder)):
        for hidden in map(Path, ("/run", *SHARED_FOLDERS)):
            if not folder.is_absolute() or folder.resolve().is_relative_to(hidden):
                allowed = f"an absolute path outside of {hidden}, where every node sees a different folder"
                yield Problem(what, str(folder), allowed, "choose another folder")


def _kernel() -> Iterator[Problem]:
    filesystems = Path("/proc/filesystems").read_text().split()
    if "overlay" not in filesystems:
        yield Problem("kernel", "no overlayfs", "overlay in /proc/filesystems", "modprobe overlay")
    folders = cgroups.hierarchies()
    available = {name for folder in folders for name in _controllers(folder)}
    for name in CONTROLLERS:
        if name not in available:
            fix = "mount cgroup v2 on /sys/fs/cgroup, or this controller of version 1"
            yield Problem("cgroups", f"no controller {name}", f"{', '.join(CONTROLLERS)} mounted", fix)


def _inotify(config: ClusterConfig, layout: Layout) -> Iterator[Problem]:
    """kubelet ends at once, again and again, where it gets no inotify instance; the limit is per user."""
    limit, used = int(INOTIFY_LIMIT.read_text()), inotify_instances_in_use()
    machines = [ClusterMachine(layout.node(node.name), Path()) for node in config.nodes]
    missing = [machine for machine in machines if not machine.is_running()]
    needed = (INOTIFY_PER_NODE * len(missing) + INOTIFY_PER_CONTROL_PLANE) if missing else 0
    if used + needed > limit:
        got = f"{limit}, of which {used} are in use"
        fix = "sysctl fs.inotify.max_user_instances=1024, or take another cluster down"
        yield Problem("fs.inotify.max_user_instances", got, f"{needed} free ones", fix)


def inotify_instances_in_use(processes: Path = Path("/proc")) -> int:
    """Count the inotify instances of all processes that we may look into: as root, all of them."""
    return sum(_is_inotify(file) for folder in processes.glob("[0-9]*/fd") for file in _files(folder))


def _files(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:  # a process that has just ended
        return []


def _is_inotify(file: Path) -> bool:
    try:
        return str(file.readlink()) == "anon_inode:inotify"
    except OSError:
        return False


def _controllers(folder: Path) -> list[str]:
    unified = folder / "cgroup.controllers"
    return unified.read_text().split() if unified.exists() else folder.name.split(",")


def _addresses(nodes: IPv4Network, link: str, own: Path) -> Iterator[Problem]:
    if shutil.which("ip", path=PROGRAM_PATH) is None:
        return  # reported already, or installed before the cluster starts
    routes = {IPv4Network(destination): interface for destination, interface in host_routes()}
    clusters = run_folders()
    if (namesake := clusters.get(link)) and namesake.resolve() != own.resolve():
        fix = f"choose another name, or take down the cluster whose files are in {namesake.parent}"
        got = f"{own.parent.name}, of a cluster that is up"
        yield Problem("name", got, "a name that no other cluster on this host has", fix)
    for destination, interface in routes.items():
        if interface != link and destination.overlaps(nodes):
            run = clusters.get(interface)
            user = f"the cluster whose files are in {run.parent}" if run else "its user"
            yield Problem(
                "target.network.node_cidr",
                f"{nodes}, of which {destination} is in use on this host by {interface}",
                "a range that no route of this host covers",
                f"write {_free_range(routes)}, or take down {user}",
            )


def _free_range(taken: Collection[IPv4Network]) -> str:
    """Return a range for nodes beside these, apart from the usual ones of pods and Services."""
    candidates = IPv4Network("10.89.0.0/16").subnets(new_prefix=24)
    free = (str(each) for each in candidates if not any(each.overlaps(used) for used in taken))
    return next(free, "another one")


def _space(run: Path) -> Iterator[Problem]:
    existing = next(path for path in (run, *run.parents) if path.exists())
    free = shutil.disk_usage(existing).free / 2**30
    if free < FREE_GIB:
        fix = "free some space, or point TRAINYARD_STATE at another disk"
        yield Problem(str(existing), f"{free:.1f} GiB free", f"at least {FREE_GIB} GiB", fix)


def _earlier_run(layout: Layout) -> Iterator[Problem]:
    found = layout.version.read_text() if layout.version.exists() else VERSION
    if found != VERSION:
        yield Problem(
            str(layout.run),
            f"a run of layout {found}",
            f"layout {VERSION}",
            "take it down with the release that created it, or with `trainyard down`, which deletes it all",
        )
