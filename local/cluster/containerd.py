"""Renders containerd's configuration: for nodes, and for the image store."""

from pathlib import Path

CNI_PLUGINS = Path("/usr/lib/cni")
"""Folder of Debian's containernetworking-plugins."""
SOCKET = "/run/containerd/containerd.sock"
STORE = "containerd"
"""Name of the folder, inside a machine's folder, with all of containerd's data."""

_BASE = """version = 2
root = "{root}"
state = "/run/containerd"
oom_score = 0
disabled_plugins = [{disabled}]
[grpc]
  address = "{socket}"
"""
# Unused snapshotters, and tracing, which nobody collects.
_DISABLED = (
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.tracing.processor.v1.otlp",
    "io.containerd.internal.v1.tracing",
)
_KUBERNETES = "io.containerd.grpc.v1.cri"
# Without CAP_SYS_RESOURCE no process may lower its out-of-memory score, and no sandbox would start.
_CRI = """[plugins."{kubernetes}"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."{kubernetes}".cni]
    bin_dir = "{plugins}"
    conf_dir = "{folder}/cni"
  [plugins."{kubernetes}".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""


def node_config(folder: Path, pause_image: str) -> str:
    """Return the config of the containerd of a node whose files lie in `folder`."""
    cri = _CRI.format(kubernetes=_KUBERNETES, pause=pause_image, plugins=CNI_PLUGINS, folder=folder)
    return _base(folder / STORE, _DISABLED) + cri


def store_config(root: Path) -> str:
    """Return the config of a containerd that only unpacks images, into `root`."""
    return _base(root, (*_DISABLED, _KUBERNETES))


def _base(root: Path, disabled: tuple[str, ...]) -> str:
    plugins = ", ".join(f'"{name}"' for name in disabled)
    return _BASE.format(root=root, disabled=plugins, socket=SOCKET)
