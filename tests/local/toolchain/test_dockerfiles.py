"""The training images' Dockerfiles as text: pinned, without root, with the contents of the local image."""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

import catalog
from engine.paths import REPOSITORY
from infra.platform.jobs.runtimes import _OF_THE_IMAGE
from local.locked import entries
from local.toolchain.images import USER, environment
from local.toolchain.versions import Versions

IMAGES = REPOSITORY / "training/images"
BAKE: dict[str, Any] = json.loads((IMAGES / "docker-bake.json").read_text())
DOCKERFILES = sorted(IMAGES.glob("*/Dockerfile"))
PINNED = re.compile(r"[a-z0-9./-]+:(?!latest)[\w.-]+@sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Instruction:
    """An instruction of a Dockerfile."""

    name: str
    rest: str


def instructions(file: Path) -> list[Instruction]:
    text = re.sub(r"(?m)^#.*\n", "", file.read_text()).replace("\\\n", " ")
    return [Instruction(*line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def of(file: Path, name: str) -> list[str]:
    return [each.rest for each in instructions(file) if each.name == name]


@pytest.fixture(params=DOCKERFILES, ids=lambda file: file.parent.name)
def dockerfile(request: pytest.FixtureRequest) -> Path:
    file: Path = request.param
    return file


def targets() -> dict[str, dict[str, Any]]:
    return {name: target for name, target in BAKE["target"].items() if not name.startswith("_")}


def test_groups_of_the_bake_file_name_its_targets() -> None:
    for group in BAKE["group"].values():
        assert set(group["targets"]) <= set(targets())


def test_every_base_is_pinned_by_its_digest() -> None:
    default = of(IMAGES / "torch/Dockerfile", "ARG")[0].removeprefix("BASE=")
    assert default == targets()["torch-cuda"]["args"]["BASE"]
    for name, target in targets().items():
        image, base = name.split("-")
        if image == "torch":
            assert PINNED.fullmatch(target["args"]["BASE"])
        else:
            below = {"mpi": "torch", "deepspeed": "mpi"}[image]
            assert target["contexts"] == {below: f"target:{below}-{base}"}


def test_every_image_gets_an_sbom_and_its_provenance() -> None:
    for target in targets().values():
        assert target["inherits"] == ["_attested"]
    assert BAKE["target"]["_attested"]["attest"] == ["type=sbom", "type=provenance,mode=max"]


def test_arguments_of_the_bake_file_are_those_of_the_dockerfiles() -> None:
    for target in targets().values():
        file = REPOSITORY / target["dockerfile"]
        declared = {rest.partition("=")[0] for rest in of(file, "ARG")}
        assert set(target.get("args", {})) == declared - {"RELEASES"}  # for users with a mirror of releases
        used = set(re.findall(r"\$\{(\w+)\}", file.read_text()))
        assert used == declared
        for source in target.get("contexts", {}):
            assert source in of(file, "FROM")


def test_every_stage_has_a_pinned_base_or_another_stage(dockerfile: Path) -> None:
    known = {"${BASE}", "torch", "mpi"}
    assert {rest.split()[0] for rest in of(dockerfile, "FROM")} <= known


def test_copied_files_exist_and_are_not_ignored(dockerfile: Path) -> None:
    ignore = dockerfile.with_name("Dockerfile.dockerignore").read_text().split()
    assert ignore[0] == "*"
    arguments = [target["args"] for name, target in targets().items() if name.startswith("torch")]
    sources = re.findall(r"source=([^,\s]+)", " ".join(of(dockerfile, "RUN")))
    for rest in of(dockerfile, "COPY"):
        if "--from=" not in rest:
            sources += rest.split()[:-1]
    assert sources
    for source in sources:
        for path in {source.replace("${REQUIREMENTS}", each["REQUIREMENTS"]) for each in arguments}:
            assert (REPOSITORY / path).exists()
            exceptions = [rule for rule in ignore if rule.startswith("!")]
            above = [PurePosixPath(path), *PurePosixPath(path).parents]
            assert any(place.match(rule[1:]) for rule in exceptions for place in above), path


def test_the_last_user_is_not_root(dockerfile: Path) -> None:
    assert of(dockerfile, "USER")[-1] == f"{USER}:{USER}"


def test_python_packages_are_installed_only_with_hashes() -> None:
    (install,) = [run for run in of(IMAGES / "torch/Dockerfile", "RUN") if "pip install" in run]
    assert {"--require-hashes", "--no-deps", "--only-binary=:all:"} <= set(install.split())
    for target in targets().values():
        if "args" in target:
            lock = (REPOSITORY / target["args"]["REQUIREMENTS"]).read_text()
            assert "--hash=sha256:" in lock


def test_only_deepspeed_is_built_from_source_with_the_images_packages() -> None:
    (install,) = [run for run in of(IMAGES / "deepspeed/Dockerfile", "RUN") if "pip install" in run]
    options = {"--require-hashes", "--no-deps", "--only-binary=:all:", "--no-binary=deepspeed"}
    assert options | {"--no-build-isolation"} <= set(install.split())
    (copy,) = [rest for rest in of(IMAGES / "deepspeed/Dockerfile", "COPY") if "--from=" in rest]
    assert copy.split()[-1] == "/opt/trainyard/env"


def test_rocms_pytorch_is_part_of_its_base_and_other_packages_are_the_same() -> None:
    def pins(name: str) -> dict[str, str]:
        text = (REPOSITORY / "requirements" / name).read_text()
        return dict(re.findall(r"(?m)^([a-z0-9-]+)==([^\s;]+)", text))

    everything, rocm = pins("training.txt"), pins("training-rocm.txt")
    left_out = set(everything) - set(rocm)
    assert rocm.items() <= everything.items()
    assert {"torch", "triton"} <= left_out
    assert all(name in {"torch", "triton"} or name.startswith(("nvidia-", "cuda-")) for name in left_out)


def test_contents_are_those_of_the_local_image(versions: Versions) -> None:
    recipes = [REPOSITORY / recipe for recipe in versions.training_image.recipes]
    assert recipes == [IMAGES / "torch", IMAGES / "mpi"]
    for image in ("torch", "mpi"):
        run = " ".join(of(IMAGES / image / "Dockerfile", "RUN"))
        assert "xargs --arg-file=/recipe/packages.txt apt-get install" in run
        assert "/recipe/customize.sh /" in run
    copied = of(IMAGES / "torch/Dockerfile", "COPY")
    code = [rest.split() for rest in copied if rest.endswith("/opt/trainyard/src")]
    code += [rest.split() for rest in copied if "training/configs" in rest]
    sources = versions.training_image.sources.items()
    assert code == [[str(source), str("/opt/trainyard/src" / target)] for source, target in sources]


def test_processes_that_ssh_starts_find_what_the_images_other_processes_find() -> None:
    found = environment(IMAGES / "torch/Dockerfile")
    assert found["PATH"].split(":")[0] == f"{found['PYTHONPATH'].split(':')[1]}/bin"
    (line,) = re.findall(r"(?m)^SetEnv (.*)$", (IMAGES / "mpi/sshd_config").read_text())
    given = dict(pair.split("=", 1) for pair in line.split())
    assert given == {name: found[name] for name in _OF_THE_IMAGE}


def test_an_image_keeps_the_library_folders_of_its_base(tmp_path: Path) -> None:
    """ROCm's base has some; Docker replaces variables as a shell does."""
    (value,) = re.findall(r"LD_LIBRARY_PATH=(\S+)", of(IMAGES / "torch/Dockerfile", "ENV")[-1])
    for base, expected in (("", ""), ("/opt/rocm/lib", "/opt/rocm/lib:")):
        command = ["sh", "-c", f'echo "{value}"']
        done = subprocess.run(command, env={"LD_LIBRARY_PATH": base}, capture_output=True, text=True)
        assert done.stdout == f"{expected}/usr/local/nvidia/lib64\n"


def test_images_for_registries_have_the_libraries_of_all_fabrics() -> None:
    """All files that a fabric class needs are in a package of the list, or built from a release."""
    packages = (IMAGES / "fabric/packages.txt").read_text().split()
    (install,) = [run for run in of(IMAGES / "torch/Dockerfile", "RUN") if "/fabric/packages.txt" in run]
    assert "xargs --arg-file=/fabric/packages.txt apt-get install" in install
    assert install.endswith("&& ldconfig")
    built = {"libfabric", "aws-ofi-nccl"}
    wanted = {file.package for fabric in catalog.fabrics() for file in fabric.image_files}
    assert wanted - {"bash"} <= {*packages, *built}
    assert {"libibverbs1", "ibverbs-providers", "librdmacm1"} <= {*packages}
    for name, base in (("torch-cuda", "debian:"), ("torch-rocm", "rocm/pytorch:")):
        args = targets()[name]["args"]
        assert args["BASE"].startswith(base)
        assert args["EFA"] == ("yes" if name == "torch-cuda" else "no")


def test_releases_that_are_built_are_verified_by_their_hashes() -> None:
    recipe = (IMAGES / "fabric/efa.sh").read_text()
    versions = dict(re.findall(r"(?m)^(\w+)=([\d.]+)$", recipe))
    hashes = dict(re.findall(r"(?m)^[0-9a-f]{128}  ([\w-]+)-\$(\w+)\.tar", recipe))
    assert hashes == {"libfabric": "libfabric", "aws-ofi-nccl": "ofi_nccl"}
    assert versions.keys() == set(hashes.values())
    assert "sha512sum --check --strict" in recipe
    assert recipe.index("sha512sum --check") < recipe.index("tar -x")
    named = re.findall(r'locked.py" "\$here/(\w+).txt" (.+)', recipe)
    pins = "".join(entries(REPOSITORY / f"requirements/{lock}.txt", *names.split()) for lock, names in named)
    assert len(set(re.findall(r"(?m)^nvidia-[\w-]+==([\d.]+)", pins))) == 1, "of one release of CUDA"


def test_a_base_without_efa_builds_nothing_for_it(tmp_path: Path) -> None:
    recipe = (IMAGES / "fabric/efa.sh").read_text().replace("/out", str(tmp_path / "out"))
    subprocess.run(["sh", "-c", recipe, "efa.sh", "no", "https://example.invalid"], check=True)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="makes files of other owners")
def test_the_recipes_create_the_same_user_on_debian_and_on_ubuntu(tmp_path: Path) -> None:
    (tmp_path / "etc/ssh/ssh_config.d").mkdir(parents=True)
    ubuntu = "ubuntu:x:1000:1000::/home/ubuntu:/bin/bash\n"
    for name, line in {"passwd": ubuntu, "shadow": "", "group": ""}.items():
        (tmp_path / "etc" / name).write_text(f"root:x:0\n{line}")
    (tmp_path / "etc/ssh/ssh_host_rsa_key").write_text("nobody's secret")
    for image in ("torch", "mpi"):
        subprocess.run([IMAGES / image / "customize.sh", tmp_path], check=True)
    users = [line.split(":") for line in (tmp_path / "etc/passwd").read_text().splitlines()]
    assert [(user[0], user[2]) for user in users] == [("root", "0"), ("trainyard", str(USER))]
    home = tmp_path / "home/trainyard"
    assert (home.stat().st_uid, (home / ".ssh").stat().st_mode & 0o777) == (USER, 0o700)
    assert "Port 2222" in (home / ".sshd_config").read_text()
    assert list((tmp_path / "etc/ssh").glob("ssh_host_*")) == []
