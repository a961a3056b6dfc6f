"""The training image as registries have it, on nodes of the running stack: with the packages inside.

A layer of 6 GB would have to be written, imported and unpacked. Instead the layer holds a marker, and its
snapshot is made here, of hard links to the folder of packages, as `local.cluster.image_store` clones images:
5 s for a node.
"""

import hashlib
import json
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path

from infra.common import names
from infra.common.artifacts import LINKS
from local.cluster.commands import program
from local.cluster.containerd import SOCKET
from local.cluster.layout import Layout
from local.cluster.machine import ClusterMachine
from local.toolchain import oci
from local.toolchain.images import ARCHIVE
from local.toolchain.releases import ARCHITECTURE
from tests.e2e.stack import LocalStack

IMAGE = "trainyard.local/training-with-packages:test"
Ctr = Callable[..., str]


def derive(image: Path, folder: Path) -> tuple[Path, list[str]]:
    """Write the archive of the image on top of a training image; return it, and its layers' chain IDs."""
    with tarfile.open(image) as archive:
        archive.extractall(folder, filter="data")
    [manifest] = json.loads((folder / "manifest.json").read_text())
    config = json.loads((folder / manifest["Config"]).read_text())
    marker = folder / "marker.tar"
    oci.write_layer(marker, {"/opt/trainyard/packages-are-inside": oci.Content(data=b"")})
    derived, given = folder / "derived.tar", config["config"]
    oci.write_archive(
        derived,
        names=[IMAGE],
        settings=oci.Settings(
            command=tuple(given["Cmd"]),
            user=given["User"],
            environment=dict(pair.split("=", 1) for pair in given["Env"]),
            working_folder=given["WorkingDir"],
        ),
        layers=[*(folder / layer for layer in manifest["Layers"]), marker],
        architecture=ARCHITECTURE,
    )
    layers = [*config["rootfs"]["diff_ids"], f"sha256:{hashlib.sha256(marker.read_bytes()).hexdigest()}"]
    chain = layers[:1]
    for layer in layers[1:]:
        chain.append(f"sha256:{hashlib.sha256(f'{chain[-1]} {layer}'.encode()).hexdigest()}")
    return derived, chain


def add(ctr: Ctr, archive: Path, chain: list[str]) -> None:
    """Import the image, and make the snapshot of its uppermost layer."""
    ctr("image", "import", "--no-unpack", str(archive))
    [mount] = json.loads(ctr("snapshot", "prepare", "--mounts", "packages", chain[-2]))
    options = dict(option.partition("=")[::2] for option in mount["Options"])
    target = Path(f"{options['upperdir']}{names.TRAINING_ENV_MOUNT}")
    target.parent.mkdir(parents=True)
    packages = (LINKS / "training-env").resolve()
    links = ["--link"] if packages.stat().st_dev == target.parent.stat().st_dev else []
    subprocess.run(["cp", "--archive", *links, packages, target], check=True)
    ctr("snapshot", "commit", chain[-1], "packages")


def put_on(stack: LocalStack, nodes: Sequence[str], folder: Path) -> None:
    """Give nodes of a running stack the image."""
    archive, chain = derive(LINKS.joinpath("training-sbom.cdx.json").resolve().with_name(ARCHIVE), folder)
    command = (program("ctr"), f"--address={SOCKET}", "--namespace=k8s.io")
    for node in nodes:
        machine = ClusterMachine(Layout(stack.run).node(node), Path())
        add(lambda *words, on=machine: on.run(*command, *words, needs=SOCKET), archive, chain)
