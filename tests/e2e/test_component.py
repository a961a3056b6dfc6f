"""The component package on the engine: YAML, Python and TypeScript programs have our program's resources."""

import json
import os
import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.paths import REPOSITORY
from infra.common import names
from infra.stackfile.source import STACK_KEY
from tests.e2e.engines import PLUGIN, installed
from tests.e2e.release import own_program
from tests.patches import changed
from tests.processes import capture
from tests.tables import table
from trainyard.component.schema import PATH

pytestmark = pytest.mark.engine

PAGE = REPOSITORY / "docs/package.md"
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
WRONG = table(__file__, "wrong_arguments")
"""Values with the right types, which languages accept and the spec refuses, all together."""
TYPESCRIPT = Path(__file__).with_name("program.ts").read_text()
NPM = (f"@pulumi/pulumi@{version('pulumi')}", "typescript@5")
TSC = [
    "--strict",
    "--skipLibCheck",
    "--target",
    "es2020",
    "--module",
    "commonjs",
    "--moduleResolution",
    "node",
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The engine's variables, with a separate state and the host for YAML."""
    state = tmp_path_factory.mktemp("state")
    return {**os.environ, **installed(state), "TRAINYARD_STATE": str(state)}


def shipped(name: str = "local") -> Any:
    return yaml.safe_load((REPOSITORY / f"stacks/Pulumi.{name}.yaml").read_text())["config"][STACK_KEY]


def in_yaml(folder: Path, stacks: dict[str, Any]) -> None:
    resources = {name: {"type": TYPE, "properties": {"stack": stack}} for name, stack in stacks.items()}
    project = {
        "name": "team",
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


def pulumi(folder: Path, environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the engine to its end."""
    return capture(["pulumi", *words], cwd=folder, env=environment, timeout=600)


def preview(folder: Path, environment: dict[str, str], *options: str, code: int = 0) -> Any:
    """Preview; return the engine's report, or its error if `code` is not 0."""
    ended = pulumi(folder, environment, "preview", "-s", "dev", "--diff" if code else "--json", *options)
    assert (ended.returncode != 0) == bool(code), (ended.stdout + ended.stderr)[-3000:]
    return ended.stdout + ended.stderr if code else json.loads(ended.stdout)


def parts(report: Any, prefix: str = "") -> dict[tuple[str, str], Any]:
    """Return type and name → inputs of a component's resources, without a prefix of their names."""
    found = {}
    for step in report["steps"]:
        kind, name = step["newState"]["type"], step["urn"].rpartition("::")[2]
        if kind not in {"pulumi:pulumi:Stack", "pulumi:providers:trainyard", TYPE}:
            inputs = step["newState"].get("inputs", {})
            found[kind, name.removeprefix(prefix)] = _unmarked(inputs)
    return found


def _unmarked(inputs: Any) -> Any:
    """Return inputs without the owner's mark, which names the project and the component."""
    if isinstance(inputs, list):
        return [_unmarked(each) for each in inputs]
    if not isinstance(inputs, dict):
        return inputs
    left_out = {"__internal", "owner", names.OWNER_ANNOTATION}
    return {key: _unmarked(value) for key, value in inputs.items() if key not in left_out}


@pytest.fixture(scope="module")
def project(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for one program after another on one stack, which previews do not change."""
    folder = tmp_path_factory.mktemp("project")
    in_yaml(folder, {"research": shipped()})
    pulumi(folder, environment, "stack", "init", "dev")
    return folder


@pytest.fixture(scope="module")
def program(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[Any, Any]:
    """The resources that our program declares."""
    folder = tmp_path_factory.mktemp("program")
    own_program(folder, yaml.safe_dump({"config": {STACK_KEY: shipped()}}))
    pulumi(folder, environment, "stack", "init", "dev")
    return parts(preview(folder, environment))


def test_a_component_is_what_our_program_declares(
    environment: dict[str, str], program: dict[Any, Any], project: Path
) -> None:
    """The first preview has the same types, names and inputs below the component.

    The program has packages with names of ours, and our policy pack evaluates it.
    """
    in_python(project, {"research": shipped()})
    for name in ("catalog", "engine", "infra", "policies", "trainyard"):
        (project / name).mkdir()
        (project / name / "__init__.py").write_text("OWN = True\n")
    (project / "__main__.py").write_text(f"import catalog, infra\nassert catalog.OWN and infra.OWN\n{PYTHON}")
    variables = {**environment, "PYTHONPATH": "."}
    report = preview(project, variables, "--policy-pack", str(REPOSITORY / "policies"))
    assert parts(report, f"{shipped()['name']}/") == program
    below = [step["urn"] for step in report["steps"] if step["newState"]["type"].startswith("kubernetes:")]
    assert below and all(f"::{TYPE}$" in urn for urn in below)


def test_the_program_of_the_page_previews_with_its_job_and_beside_a_second_cluster(
    environment: dict[str, str], program: dict[Any, Any], project: Path
) -> None:
    """The program is in YAML; the cluster's output, known at preview, validates the job's queue."""
    [text] = re.findall(r"```yaml\n(name: models\n.*?)```", PAGE.read_text(), re.DOTALL)
    printed = {**yaml.safe_load(text), "name": "team", "plugins": PLUGIN}
    printed["resources"]["more"] = {"type": TYPE, "properties": {"stack": shipped()}}
    (project / "Pulumi.yaml").write_text(yaml.safe_dump(printed))
    found = parts(preview(project, environment), f"{shipped()['name']}/")
    job = found["kubernetes:trainer.kubeflow.org/v1alpha1:TrainJob", "team-research/digits"]
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
    assert ("kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue", "research/gpu") in found
    assert {part: found.get(part) for part in program} == program


@pytest.mark.parametrize("write", [in_yaml, in_python])
def test_all_wrong_arguments_are_reported(write: Any, environment: dict[str, str], project: Path) -> None:
    write(project, {"research": changed(shipped(), WRONG)})
    reported_at_each_property(preview(project, environment, code=1))


def reported_at_each_property(output: str) -> None:
    assert len(WRONG) > 20
    missing = [path for path in WRONG if f"property stack.{path} with value" not in output]
    assert not missing, output[-3000:]
    assert output.count("fix: ") >= len(WRONG)


@pytest.mark.soak
def test_typescript_compiles_strictly_and_has_the_plan_and_the_refusals(
    environment: dict[str, str], program: dict[Any, Any], tmp_path: Path
) -> None:
    """The program is inline, by the Automation API: the Node.js host is not available as a Go module."""
    schema, codegen = PATH.read_text(), ["pulumi-codegen", "nodejs", "127.0.0.1:1", str(tmp_path / "sdk")]
    subprocess.run(codegen, env=environment, input=schema, text=True, check=True)
    (tmp_path / "program.ts").write_text(TYPESCRIPT)
    for command in (
        ["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-package-lock", *NPM],
        ["npx", "tsc", *TSC, "--outDir", "out", "program.ts"],
    ):
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, timeout=600)
    shutil.copy(tmp_path / "sdk/package.json", tmp_path / "out/sdk")

    def run(stack: Any) -> subprocess.CompletedProcess[str]:
        return capture(["node", "out/program.js", json.dumps(stack)], cwd=tmp_path, env=environment)

    right = run(shipped())
    # Besides the component's resources: the stack and the component.
    assert json.loads(right.stdout)["create"] == len(program) + 2, right.stderr[-2000:]
    reported_at_each_property(run(changed(shipped(), WRONG)).stdout)
    text = TYPESCRIPT.replace("{ stack }", "{ stack: { ...stack, name: 3 } }")
    (tmp_path / "program.ts").write_text(text)
    wrong = capture(["npx", "tsc", *TSC, "--noEmit", "program.ts"], cwd=tmp_path, env=environment)
    assert "not assignable to type" in wrong.stdout


def test_a_wrong_type_is_found_before_anything_is_made(environment: dict[str, str], project: Path) -> None:
    stack = shipped()
    stack["pools"][1]["accelerator"]["count"] = "one"
    in_yaml(project, {"research": stack})
    assert "count: Cannot assign type 'string' to type 'integer'" in preview(project, environment, code=1)
