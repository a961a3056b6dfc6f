"""Pods in images: what a pod's command imports and loads is found with its variables laid over the image's.

The pods are the reviewed ones, of tests/golden. The roots have the layout of an image: ours as its Dockerfile
declares it, and NVIDIA's, which has PyTorch among the packages of its own Python. A pod's command runs as it
is; its `python3` is a program in the root that looks up what the real one would import and load.
"""

import _ctypes
import ast
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.paths import REPOSITORY
from infra.stackfile import parse_job
from local.toolchain.images import environment
from tests.infra.golden import GOLDEN, golden_plan
from trainyard.jobs.manifest import manifest

OURS = environment(REPOSITORY / "training/images/torch/Dockerfile")
CODE = REPOSITORY / "training/src"
NVIDIAS = {
    "PATH": "/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin",
    "LD_LIBRARY_PATH": "/usr/local/cuda/compat/lib:/usr/local/cuda/lib64",
}
"""Variables of NVIDIA's image for PyTorch. Its Python needs no PYTHONPATH."""
DRIVER = "/usr/local/nvidia/lib64"
"""Folder into which GKE mounts the driver's libraries."""
PODS = sorted(GOLDEN.glob("pods/*.yaml"))
PLANS = [
    file.stem
    for file in sorted(GOLDEN.glob("*.yaml"))
    if "\ntrainyard:platform:Runtimes$" in file.read_text()
]
Container = Mapping[str, Any]
LOOK_UP = f"""#!{sys.executable} -S
import ast, ctypes, importlib.util, json, os, sys
sys.path.append("@root@/usr/local/lib/python3.12/dist-packages")
words = iter(sys.argv[1:])
option = next(each for each in words if each in ("-m", "-c") or each.endswith("c") or each[0] != "-")
if option == "-m":
    modules = [next(words)]
elif option[0] == "-":
    tree = [node for node in ast.walk(ast.parse(next(words))) if isinstance(node, ast.Import)]
    modules = [each.name for node in tree for each in node.names]
else:
    modules = []

def found(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False

def loaded(library):
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True

modules += os.environ["MODULES"].split()
with open("@root@/looked-up", "a") as log:
    log.write(json.dumps({{
        "modules": [each for each in modules if not found(each)],
        "libraries": [each for each in os.environ["LIBRARIES"].split() if not loaded(each)],
    }}) + "\\n")
sys.exit("trainyard_train.script" in sys.argv[-1] and not found("trainyard_train.script"))
"""


@dataclass(frozen=True)
class Root:
    """The root of an image, in a folder."""

    folder: Path
    environment: Mapping[str, str]

    def add(self, path: str, text: str = "", *, executable: bool = False) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace("@root@", str(self.folder)))
        file.chmod(0o755 if executable else 0o644)

    def add_library(self, path: str) -> None:
        file = self.folder / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(Path(_ctypes.__file__).read_bytes())

    def missing(self, container: Container, modules: Sequence[str], libraries: Sequence[str]) -> list[Any]:
        """Run a container's command; return the modules and libraries that it looks for in vain."""
        variables = {each["name"]: each["value"] for each in container.get("env", ()) if "value" in each}
        given = {name: self._inside(value) for name, value in {**self.environment, **variables}.items()}
        given |= {"MODULES": " ".join(modules), "LIBRARIES": " ".join(libraries)}
        log = self.folder / "looked-up"
        log.unlink(missing_ok=True)
        command = [each.replace(DRIVER, f"{self.folder}{DRIVER}") for each in container["command"]]
        command += container.get("args", ())
        done = subprocess.run(command, env=given, cwd=self.folder, capture_output=True, text=True)
        assert log.exists(), f"{command} starts no Python: {done.stderr}"
        *_, last = log.read_text().splitlines()
        looked_up: dict[str, list[str]] = json.loads(last)
        return [*looked_up["modules"], *looked_up["libraries"]]

    def _inside(self, value: str) -> str:
        return ":".join(f"{self.folder}{each}" if each.startswith("/") else each for each in value.split(":"))


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Root:
    root = Root(tmp_path_factory.mktemp("ours"), OURS)
    for package in ("torch/distributed", *imported()):
        root.add(f"opt/trainyard/env/{package}/__init__.py")
    root.add("opt/trainyard/env/torch/distributed/run.py")
    root.add("opt/trainyard/env/torch/__init__.py")
    root.add("opt/trainyard/env/bin/mpirun", '#!/bin/sh\nshift 2\nexec "$@"\n', executable=True)
    (root.folder / "opt/trainyard/src").symlink_to(CODE)
    root.add("usr/bin/python3", LOOK_UP, executable=True)
    return root


@pytest.fixture(scope="module")
def nvidias(tmp_path_factory: pytest.TempPathFactory) -> Root:
    root = Root(tmp_path_factory.mktemp("nvidias"), NVIDIAS)
    for file in ("torch/__init__.py", "torch/distributed/__init__.py", "torch/distributed/run.py"):
        root.add(f"usr/local/lib/python3.12/dist-packages/{file}")
    root.add_library("usr/local/cuda/lib64/libcudart.so.13")
    root.add("usr/bin/python3", LOOK_UP, executable=True)
    return root


@cache
def imported() -> frozenset[str]:
    """Packages that our code cannot start without: imports at the head of its modules."""
    files = [file for file in CODE.rglob("*.py") if "integrations" not in file.parts]
    heads = [node for file in files for node in ast.parse(file.read_text()).body]
    names = {each.name for node in heads if isinstance(node, ast.Import) for each in node.names}
    names |= {node.module or "" for node in heads if isinstance(node, ast.ImportFrom) and not node.level}
    tops = {name.partition(".")[0] for name in names}
    return frozenset(tops - sys.stdlib_module_names - {"training", "trainyard_train"})


def containers(data: object) -> Iterator[Container]:
    """Every container anywhere in a manifest."""
    if isinstance(data, dict):
        for name, each in data.items():
            if name in ("containers", "initContainers") and isinstance(each, list):
                yield from each
            yield from containers(each)
    elif isinstance(data, list):
        for each in data:
            yield from containers(each)


def pythons(plan: str) -> list[Container]:
    """Containers of a plan that run Python in an image of jobs."""
    blocks = golden_plan(plan)
    runtimes = [block for urn, block in blocks.items() if ":ClusterTrainingRuntime::" in urn]
    images = {each["image"] for each in containers(runtimes) if each["name"] == "node"}
    found = [each for each in containers(list(blocks.values())) if each.get("image") in images]
    started = [each for each in found if "python3" in each.get("command", ())]
    return list({json.dumps([each["command"], each.get("env")]): each for each in started}.values())


def libraries(plan: str, root: Root) -> list[str]:
    """Libraries that a rank loads by name, and that are not in a folder of the loader itself."""
    if plan not in ("gcp", "racks-gcp"):
        return []
    root.add_library(f"{DRIVER}/libcuda.so.1")
    return ["libcuda.so.1"]


def of_golden(file: Path) -> list[Container]:
    found = yaml.safe_load(file.read_text())["containers"]
    return [each for each in found.values() if "python3" in each["command"]]


@pytest.mark.parametrize("file", PODS, ids=lambda file: str(file.stem))
def test_a_golden_pod_finds_what_it_imports_in_our_image(ours: Root, file: Path) -> None:
    [node] = of_golden(file)
    assert ours.missing(node, [*imported(), "trainyard_train"], libraries(file.stem, ours)) == []


@pytest.mark.parametrize("plan", PLANS)
def test_every_pod_that_runs_our_code_finds_what_it_imports_in_our_image(ours: Root, plan: str) -> None:
    given = pythons(plan)
    assert given
    for container in given:
        assert ours.missing(container, [*imported(), "trainyard_train"], libraries(plan, ours)) == []


@pytest.mark.parametrize("file", PODS, ids=lambda file: str(file.stem))
def test_a_golden_pod_finds_pytorch_where_another_image_has_it(nvidias: Root, file: Path) -> None:
    [node] = of_golden(file)
    torchrun = {**node, "args": ["-m", "torch.distributed.run"], "command": node["command"][:-2]}
    assert nvidias.missing(torchrun, ["torch"], libraries(file.stem, nvidias)) == []


JOBS: dict[str, dict[str, Any]] = {
    "args": {"args": ["--config", "digits"]},
    "program": {"command": ["python", "train.py"]},
    "by-mpirun": {"args": ["--config", "digits"], "runtime": "mpi-tcp"},
    "torchrun": {"command": ["python3", "-m", "torch.distributed.run", "train.py"]},
}


def job_container(name: str, plan: str) -> Container:
    """The container of a job on a plan's nodes without a fabric, as Trainer makes it."""
    asked = {"name": "a", "team": "b", "runtime": "torch-tcp", "nodes": 2, "gpus": 1}
    job = parse_job({**asked, **JOBS[name]})
    [runtime] = [
        block for urn, block in golden_plan(plan).items() if urn.endswith(f"TrainingRuntime::{job.runtime}")
    ]
    *_, node = [each for each in containers(runtime) if each["name"] == "node"]
    trainer = manifest(job, "run")["spec"]["trainer"]
    return {**node, "args": [], **trainer, "env": [*node["env"], *trainer.get("env", ())]}


@pytest.mark.parametrize("name", JOBS)
def test_a_job_on_gke_without_a_fabric_finds_pytorch_and_the_driver(ours: Root, name: str) -> None:
    container = job_container(name, "aws-dev")
    assert ours.missing(container, ["torch"], libraries("gcp", ours)) == []


@pytest.mark.parametrize("name", ["program", "torchrun"])
def test_a_job_on_gke_adds_the_driver_to_the_folders_of_another_image(nvidias: Root, name: str) -> None:
    """The pods of runtimes without a fabric are the same on every cloud."""
    container = job_container(name, "aws-dev")
    wanted = [*libraries("gcp", nvidias), "libcudart.so.13"]
    assert nvidias.missing(container, ["torch"], wanted) == []
    assert nvidias.missing({**container, "command": ["python3", "-m", "torch"]}, [], wanted) == [wanted[0]]
