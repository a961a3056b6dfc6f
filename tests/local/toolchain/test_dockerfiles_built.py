"""The Dockerfiles, built by buildah: every step runs, and the image has what is documented.

The base is a small Debian built here, and PyTorch and EFA are omitted, as in the image for ROCm. AMD's base
is not used, and efa.sh runs only if its releases are reachable (RELEASES=URL: GitHub, or a mirror). The tests
need root, buildah, mirrors of apt and PyPI, and some minutes, but no daemon and no registry.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import catalog
from catalog import image_lint
from engine.paths import REPOSITORY
from local.toolchain import oci
from local.toolchain.images import USER, _mirrors, _suite, environment
from local.toolchain.releases import ARCHITECTURE
from trainyard.images.contents import ImageArchive, read_image

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
BASE, TORCH, MPI = "localhost/base:test", "localhost/torch:test", "localhost/mpi:test"
REQUIREMENTS = "requirements/training-rocm.txt"
RELEASES = os.environ.get("RELEASES", "")
FROM_HOST = ("/etc/apt", "/etc/ssl/certs", "/etc/pip.conf", "/etc/resolv.conf")
"""This host's settings of package mirrors and certificate authorities."""


@dataclass(frozen=True)
class Builder:
    """Buildah with a separate storage."""

    folder: Path

    def run(self, *arguments: str) -> str:
        command = [
            "buildah",
            "--root",
            str(self.folder / "root"),
            "--runroot",
            str(self.folder / "run"),
            *arguments,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
        shown = f"buildah {' '.join(arguments)}"
        assert done.returncode == 0, f"{shown}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    def build(self, image: str, name: str, *options: str) -> None:
        recipe = f"training/images/{name}/Dockerfile"
        ignored = ["--ignorefile", f"{recipe}.dockerignore"]
        given = [
            part for path in FROM_HOST if Path(path).exists() for part in ("--volume", f"{path}:{path}:ro")
        ]
        words = ["--isolation", "chroot", "--file", recipe, *ignored, *given, *options, "--tag", image, "."]
        self.run("build", *words)

    def config(self, image: str) -> dict[str, Any]:
        """Return the configuration with which a container of the image starts."""
        inspected = json.loads(self.run("inspect", "--type", "image", image))
        found: dict[str, Any] = inspected["OCIv1"]["config"]
        return found

    def inside(self, image: str, *command: str) -> str:
        container = self.run("from", image).strip()
        return self.run("run", "--isolation", "chroot", container, "--", *command)


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    if os.geteuid() != 0:
        pytest.fail("buildah without root wants ranges of users: run this again with sudo")
    if shutil.which("buildah") is None:
        pytest.fail("buildah is not here: apt-get install --no-install-recommends buildah")
    folder = tmp_path_factory.mktemp("buildah")
    made = Builder(folder)
    layer, archive = folder / "base.tar", folder / "base.oci.tar"
    packages = "--include=apt,ca-certificates,python3"
    subprocess.run(
        ["mmdebstrap", "--mode=root", "--variant=minbase", packages, _suite(), str(layer), *_mirrors()],
        check=True,
        capture_output=True,
    )
    settings = oci.Settings(command=("/bin/sh",), user="0:0")
    oci.write_archive(archive, names=[BASE], settings=settings, layers=[layer], architecture=ARCHITECTURE)
    made.run("pull", f"docker-archive:{archive}")
    yield made
    made.run("rm", "--all")
    made.run("rmi", "--all", "--force")


@pytest.fixture(scope="module")
def images(builder: Builder) -> Builder:
    given = {"BASE": BASE, "REQUIREMENTS": REQUIREMENTS, "EFA": "yes" if RELEASES else "no"}
    given |= {"RELEASES": RELEASES} if RELEASES else {}
    builder.build(
        TORCH, "torch", *(part for item in given.items() for part in ("--build-arg", "=".join(item)))
    )
    builder.build(MPI, "mpi", "--build-context", f"torch=container-image://{TORCH}")
    return builder


@pytest.mark.parametrize("image", [TORCH, MPI])
def test_an_image_starts_without_root_in_the_local_images_environment(images: Builder, image: str) -> None:
    config = images.config(image)
    assert config["User"] == f"{USER}:{USER}"
    assert config["WorkingDir"] == "/home/trainyard"
    declared = environment(REPOSITORY / "training/images/torch/Dockerfile")
    assert declared.items() <= dict(pair.split("=", 1) for pair in config["Env"]).items()


@pytest.mark.parametrize("image", [TORCH, MPI])
def test_the_training_package_and_its_locked_packages_are_found(images: Builder, image: str) -> None:
    program = (
        "import os, numpy, pydantic, safetensors; from trainyard_train.config import load_config;"
        " print(os.getuid(), pydantic.__file__, load_config(None, ['run_dir=/tmp/run']).run_dir)"
    )
    user, place, run_dir = images.inside(image, "python3", "-c", program).split()
    assert (user, run_dir) == (str(USER), "/tmp/run")
    assert place.startswith("/opt/trainyard/env/")


def test_no_package_list_pip_or_key_of_a_host_is_left_in_an_image(images: Builder) -> None:
    found = images.inside(
        MPI,
        "sh",
        "-c",
        "ls -A /var/lib/apt/lists /etc/ssh; command -v pip3 || echo no pip; ls -A /opt/trainyard",
    )
    assert "no pip" in found
    assert "ssh_host" not in found
    assert {"env", "src"} <= set(found.split())


def test_an_image_has_the_fabric_libraries_that_its_base_lacks(images: Builder, tmp_path: Path) -> None:
    lacks = {}
    for name, image in (("base", BASE), ("torch", TORCH), ("mpi", MPI)):
        archive = tmp_path / f"{name}.tar"
        images.run("push", image, f"oci-archive:{archive}")
        contents = read_image(ImageArchive(archive))
        classes = [catalog.fabric(fabric) for fabric in ("ib-ndr", "roce", *(["efav3"] if RELEASES else []))]
        lacks[name] = [fault.where for each in classes for fault in image_lint.faults(contents, each)]
    assert "libibverbs.so.1" in lacks.pop("base")
    assert lacks == {"torch": [], "mpi": []}


def test_ssh_serves_as_that_user_with_the_jobs_own_key(images: Builder) -> None:
    script = (
        "ssh-keygen -q -t rsa -N '' -f ~/.ssh/id_rsa && cp ~/.ssh/id_rsa.pub ~/.ssh/authorized_keys"
        " && /usr/sbin/sshd -t -f ~/.sshd_config && echo serves"
    )
    assert images.inside(MPI, "sh", "-c", script).strip() == "serves"
    assert images.config(MPI)["Cmd"] == ["/usr/sbin/sshd", "-De", "-f", "/home/trainyard/.sshd_config"]
    assert "2222/tcp" in images.config(MPI)["ExposedPorts"]
