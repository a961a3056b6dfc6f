"""The component package on the real engine: programs in YAML and Python, with our own program's parts."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.paths import REPOSITORY, Paths
from engine.progress import for_stream
from infra.spec.source import STACK_KEY
from local.toolchain import Toolchain, load_versions
from trainyard.parts import PACKAGE_PARTS

pytestmark = pytest.mark.engine

PLUGIN = {"providers": [{"name": "trainyard", "path": str(REPOSITORY / ".trainyard/bin")}]}
TYPE = "trainyard:index:Cluster"
PYTHON = """
import json, pulumi

class Cluster(pulumi.ComponentResource):
    def __init__(self, name, stack, opts=None):
        super().__init__("trainyard:index:Cluster", name, {"stack": stack, "queues": None}, opts, remote=True)

stacks = json.load(open("stacks.json"))
made = [Cluster(name, stack) for name, stack in stacks.items()]
pulumi.export("queues", made[0].queues)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The engine's variables, with a state of its own and the host for YAML."""
    paths = Paths.from_environment({**os.environ, "TRAINYARD_STATE": str(tmp_path_factory.mktemp("state"))})
    toolchain = Toolchain(paths, load_versions(), for_stream())
    toolchain.ensure(*PACKAGE_PARTS)
    return {**os.environ, **toolchain.environment(), "TRAINYARD_STATE": str(paths.state)}


def shipped(name: str = "local") -> Any:
    return yaml.safe_load((REPOSITORY / f"stacks/Pulumi.{name}.yaml").read_text())["config"][STACK_KEY]


def in_yaml(folder: Path, stacks: dict[str, Any], name: str = "team") -> None:
    resources = {name: {"type": TYPE, "properties": {"stack": stack}} for name, stack in stacks.items()}
    project = {
        "name": name,
        "runtime": "yaml",
        "plugins": PLUGIN,
        "resources": resources,
        "outputs": {"queues": f"${{{next(iter(stacks))}.queues}}"},
    }
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(project, sort_keys=False))


def in_python(folder: Path, stacks: dict[str, Any]) -> None:
    runtime = {"name": "python", "options": {"virtualenv": str(REPOSITORY / ".venv")}}
    project = {"name": "team", "runtime": runtime}
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(project))
    (folder / "__main__.py").write_text(PYTHON)
    (folder / "stacks.json").write_text(json.dumps(stacks))


def preview(folder: Path, environment: dict[str, str], *, code: int = 0) -> Any:
    """Preview; return what the engine would do, or what it says where it refuses."""
    told = {**environment, "PULUMI_CONFIG_PASSPHRASE_FILE": environment["PULUMI_CONFIG_PASSPHRASE_FILE"]}
    for command in (["stack", "init", "dev"], ["preview", "-s", "dev", "--json" if not code else "--diff"]):
        ended = subprocess.run(
            ["pulumi", *command], cwd=folder, env=told, capture_output=True, text=True, timeout=200
        )
    assert (ended.returncode != 0) == bool(code), (ended.stdout + ended.stderr)[-3000:]
    return json.loads(ended.stdout) if not code else ended.stdout + ended.stderr


def parts(report: Any, prefix: str = "") -> dict[tuple[str, str], Any]:
    """Type and name → inputs of all below a component; a prefix is taken off names."""
    found = {}
    for step in report["steps"]:
        kind, name = step["newState"]["type"], step["urn"].rpartition("::")[2]
        if kind not in {"pulumi:pulumi:Stack", "pulumi:providers:trainyard", TYPE}:
            inputs = step["newState"].get("inputs", {})
            found[kind, name.removeprefix(prefix)] = {k: v for k, v in inputs.items() if k != "__internal"}
    return found


@pytest.fixture(scope="module")
def program(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    """What our own program declares."""
    folder = tmp_path_factory.mktemp("program")
    own_program(folder)
    return parts(preview(folder, environment))


def own_program(folder: Path, name: str = "trainyard") -> None:
    """Our program, on a stack of its own."""
    project = {**yaml.safe_load((REPOSITORY / "Pulumi.yaml").read_text()), "name": name}
    project["main"] = str(REPOSITORY / "infra")
    project["runtime"]["options"]["virtualenv"] = str(REPOSITORY / ".venv")
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(project))
    (folder / "stacks").mkdir()
    file = {"config": {STACK_KEY: shipped()}}
    (folder / "stacks/Pulumi.dev.yaml").write_text(yaml.safe_dump(file))


@pytest.mark.parametrize("write", [in_yaml, in_python])
def test_a_component_is_what_our_program_declares(
    write: Any, environment: dict[str, str], program: dict[Any, Any], tmp_path: Path
) -> None:
    """The first preview, in full: the same types, names and inputs, below the component."""
    write(tmp_path, {"research": shipped()})
    report = preview(tmp_path, environment)
    assert parts(report, f"{shipped()['name']}/") == program
    below = [step["urn"] for step in report["steps"] if step["newState"]["type"].startswith("kubernetes:")]
    assert below and all(f"::{TYPE}$" in urn for urn in below)


def test_two_clusters_stand_in_one_program(
    environment: dict[str, str], program: dict[Any, Any], tmp_path: Path
) -> None:
    second = {**shipped(), "name": "second"}
    in_yaml(tmp_path, {"research": shipped(), "second": second})
    made = parts(preview(tmp_path, environment))
    assert len(made) == 2 * len(program)


@pytest.mark.parametrize("write", [in_yaml, in_python])
def test_wrong_arguments_are_refused_by_the_property_that_is_wrong(
    write: Any, environment: dict[str, str], tmp_path: Path
) -> None:
    stack = shipped()
    stack["pools"][0]["num_nodes"] = -1
    stack["teams"][0]["queue"] = "none-such"
    write(tmp_path, {"research": stack})
    told = preview(tmp_path, environment, code=1)
    for path in ("stack.pools[0].num_nodes", "stack.teams[0].queue"):
        assert f"property {path} with value" in told, told[-3000:]
    assert told.count("fix: ") >= 2


def test_a_wrong_type_is_found_before_anything_is_declared(
    environment: dict[str, str], tmp_path: Path
) -> None:
    stack = shipped()
    stack["pools"][0]["num_nodes"] = "one"
    in_yaml(tmp_path, {"research": stack})
    assert "num_nodes: Cannot assign type 'string' to type 'integer'" in preview(
        tmp_path, environment, code=1
    )
