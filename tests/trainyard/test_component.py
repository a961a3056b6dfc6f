"""The component package: its schema equals the spec, and problems are reported at the argument's property."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import re
import subprocess
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import replace
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from pulumi.runtime import rpc
from pulumi.runtime.proto import errors_pb2

from infra import team_queues
from infra.common.artifacts import ROOT, Artifacts
from infra.common.target_registry import TARGETS, target_of
from infra.errors import HostError, InputError, Problem
from infra.stackfile import parse
from infra.stackfile.job_file import parse_job
from infra.stackfile.source import FLEET_KEY, STACK_KEY
from infra.stackfile.stack import Stack
from local.locked import locked_versions
from local.toolchain import Toolchain
from policies import presence
from policies.config import EvaluatedStack as Run
from tests.infra.golden import assert_matches, golden_plan
from tests.problems import problem_of, problems_of
from tests.processes import capture
from tests.tables import table
from trainyard.component import needs
from trainyard.component.components import COMPONENTS
from trainyard.component.construct import _known, _secrets_in, _status
from trainyard.component.guards import check_stack, no_policy_warning, unused_providers_warning
from trainyard.component.outputs import MODULE, OUTPUTS
from trainyard.component.schema import PATH, as_text, package_schema
from trainyard.component.training_job import check, local_queue
from trainyard.stack.parts import CHART_PARTS, CLUSTER_PARTS

SCHEMA = package_schema()
BY_NAME_ALONE = r"(?:pipx?|uv tool|uv pip) install (?:-\S+ )*['\"]?trainyard(?![\w.-])(?!\[?\w*\]? @)"
"""A command that would install what has our name on PyPI."""
TYPES = SCHEMA["types"]


def shipped(name: str) -> Any:
    return yaml.safe_load((ROOT / "stacks" / f"Pulumi.{name}.yaml").read_text())["config"][STACK_KEY]


RUN = Run("team", "dev")
NO_SPOT = [{"name": "gpu", "flavors": [{"pool": "on-demand", "quota": 16}]}]


def refused(change: dict[str, Any], stack: str = "local", **config: Any) -> list[Problem]:
    """Return the problems of a shipped stack with this change and these `trainyard:` configuration keys."""
    run = Run("team", "dev", config={f"trainyard:{key}": json.dumps(each) for key, each in config.items()})
    given = {"stack": {**shipped(stack), **change}}
    return problems_of(lambda: COMPONENTS[f"{MODULE}Cluster"].read(given, run))


def test_the_plugin_has_the_schema_of_the_models() -> None:
    """To update engine/provider/schema.json: `trainyard stack validate --schema package`."""
    assert_matches(as_text(SCHEMA), PATH)


def test_no_text_advises_to_install_by_the_name_alone() -> None:
    """On PyPI the name belongs to another project."""
    command = ["git", "ls-files", "-z", "*.py", "*.md", "*.yml", "*.yaml", "*.sh", ":!tests"]
    listed = capture(command, cwd=ROOT, check=True)
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    assert not [file for file in files if re.search(BY_NAME_ALONE, file.read_text())]


def test_the_packages_lock_has_what_its_modules_import() -> None:
    extras = {target_of(kind).packages for kind in TARGETS} - {"local"}
    sdks = {name for extra in extras for name in needs._sdk_packages(ROOT / "pyproject.toml", extra)}
    locked = {"trainyard", "botocore", *sdks, *locked_versions(ROOT / "requirements/plugin.txt")}
    known = packages_distributions()
    folders = ("catalog", "engine", "local", "policies", "trainyard/component")
    files = {file for folder in folders for file in (ROOT / folder).rglob("*.py")}
    for file in files - {ROOT / "policies/setup.py"}:
        for module in imported(ast.parse(file.read_text())):
            distributions = {each.lower().replace("_", "-") for each in known.get(module, ())}
            assert not distributions or distributions & locked, f"{module} of {file}"


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the top-level package of each import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0]


def test_every_key_of_the_spec_is_a_property() -> None:
    assert set(TYPES[f"{MODULE}Stack"]["properties"]) == {
        field.alias or name for name, field in Stack.model_fields.items()
    }
    kinds = TYPES[f"{MODULE}Stack"]["properties"]["target"]["discriminator"]["mapping"]
    assert list(kinds) == list(TARGETS)
    for kind, reference in kinds.items():
        keys = TYPES[reference.removeprefix("#/types/")]["properties"]
        assert set(keys) == {f.alias or name for name, f in target_of(kind).spec.model_fields.items()}
        assert keys["kind"]["const"] == kind


def test_no_type_is_referred_to_that_does_not_exist() -> None:
    references = {part.split('"')[0] for part in json.dumps(SCHEMA).split('"#/types/')[1:]}
    assert references <= set(TYPES)


def test_the_outputs_are_those_of_the_program() -> None:
    assert set(golden_plan("local")["outputs"]) == set(OUTPUTS["Cluster"])


def test_team_files_are_read_and_their_problems_have_their_lines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "teams").mkdir()
    (tmp_path / "teams" / "vision.yaml").write_text("name: vision\nqueue: gpux\n")
    (tmp_path / "teams" / "speech.yaml").write_text("name: [\n")
    monkeypatch.setenv("TRAINYARD_STACKS", str(tmp_path))
    found = refused({"teams_from": "teams"})
    broken = f"{tmp_path}/teams/speech.yaml"
    assert [(each.path, each.location.rpartition("/")[2]) for each in found] == [
        (broken, "speech.yaml:2:1"), ("stack.teams[2].queue", "vision.yaml:2:8"),
    ]  # fmt: skip
    assert "vision.yaml:2:8: got 'gpux'" in str(_status(InputError(found)))


@pytest.mark.parametrize(("change", "path"), table(__file__, "job_alone"))
def test_a_job_alone_is_refused_settings_of_a_stack(change: dict[str, Any], path: str) -> None:
    job = {"name": "vision", "team": "research", "runtime": "torch-tcp", "command": ["python", "train.py"]}
    data = {key: value for key, value in {**job, **change}.items() if value is not None}
    problem = problem_of(lambda: COMPONENTS[f"{MODULE}TrainingJob"].read({"job": data}, RUN))
    assert problem.path == path
    assert problem.got and problem.allowed and problem.fix


CASES = table(__file__)
ARGS = ["--config", "digits"]
TEAMS: Mapping[str, Any] = CASES["teams"]
"""The output `queues` of a Cluster."""


@pytest.mark.parametrize(("change", "queues", "path", "allowed", "fix"), CASES["queues"])
def test_a_job_is_refused_a_queue_that_is_not_its_teams(
    change: dict[str, Any], queues: Any, path: str, allowed: str, fix: str
) -> None:
    job = {"name": "vision", "team": "research", "runtime": "torch-tcp", "args": ARGS, **change}
    read = COMPONENTS[f"{MODULE}TrainingJob"].read
    problem = problem_of(lambda: read({"job": job, "queues": TEAMS if queues is None else queues}, RUN))
    assert (problem.path, problem.allowed[: len(allowed)], problem.fix[: len(fix)]) == (path, allowed, fix)


@pytest.mark.parametrize(
    ("queue", "local"), [(None, "research"), ("gpu", "research"), ("amd", "research-amd")]
)
def test_a_queue_is_named_by_the_cluster_queue_and_becomes_the_teams_local_queue(
    queue: str | None, local: str
) -> None:
    """The local queue of a team's first queue has the team's name."""
    data = {"name": "vision", "team": "research", "runtime": "torch-tcp", "args": ARGS, "queue": queue}
    job = parse_job(data)
    check(job, TEAMS)
    assert asyncio.run(local_queue(job, TEAMS, pulumi.ResourceOptions())) == local


def test_the_queues_of_a_cluster_are_those_that_a_job_takes() -> None:
    outputs: Any = golden_plan("local")["outputs"]
    assert set(outputs["queues"]["research"]) <= set(TEAMS["research"])
    keys = TYPES[f"{MODULE}TeamQueue"]["properties"]
    assert set(keys) == set(TEAMS["research"])
    assert {"namespace", *team_queues.KEYS.values()} == set(keys)


def test_a_job_takes_the_queues_that_a_program_in_python_has_or_exports() -> None:
    snake = {camel: name for name, camel in team_queues.KEYS.items()}
    exported = {
        team: {snake.get(key, key): part for key, part in each.items()} for team, each in TEAMS.items()
    }
    assert exported != TEAMS and team_queues.read(exported) == team_queues.read(TEAMS) == TEAMS
    assert team_queues.read({"research": "gpu"}) == {"research": "gpu"}


async def _awaited(made: Awaitable[Any]) -> Any:
    return await made


def test_a_problem_found_while_resources_are_declared_is_at_its_property_too() -> None:
    def declare_parts(_: pulumi.ResourceOptions) -> dict[str, Any]:
        raise InputError([Problem("target.cluster.context", "'x'", "a context", "name one")])

    kind = replace(COMPONENTS[f"{MODULE}Cluster"], prepare=lambda *_: declare_parts)
    with pytest.raises(InputError, match=r"^stack\.target\.cluster\.context"):
        asyncio.run(_awaited(kind.read({"stack": {}}, RUN)(pulumi.ResourceOptions())))


def test_a_cluster_without_a_name_has_the_stacks() -> None:
    stack = {key: value for key, value in shipped("local").items() if key != "name"}
    read = COMPONENTS[f"{MODULE}Cluster"].read
    problems = problems_of(lambda: read({"stack": {**stack, "pools": []}}, RUN))
    assert "stack.name" not in {each.path for each in problems}


def test_every_problem_reaches_the_engine_at_its_property() -> None:
    with pytest.raises(InputError) as error:
        COMPONENTS[f"{MODULE}Cluster"].read({"stack": {**shipped("local"), "name": 3, "pools": []}}, RUN)
    details = errors_pb2.InputPropertiesError()
    assert _status(error.value).details[0].Unpack(details)
    assert {each.property_path for each in details.errors} >= {"stack.name", "stack.pools"}
    assert all("allowed: " in each.reason and "fix: " in each.reason for each in details.errors)


def test_spot_without_a_fallback_is_refused_without_the_policy_pack() -> None:
    """The spec refuses a queue of only spot pools; the guard refuses a spot pool that no queue has."""
    (problem,) = refused({"queues": NO_SPOT}, "azure")
    assert (problem.path, problem.got) == ("stack.queues", "none for spot pool spot")
    assert problem.fix.startswith("add a flavor of an on-demand")


@pytest.mark.parametrize(("stack", "allowed", "path", "got"), CASES["residency"])
def test_data_outside_of_the_declared_residency_is_refused_without_the_policy_pack(
    stack: str, allowed: list[str], path: str, got: str
) -> None:
    country = {"target": {**shipped("onprem")["target"], "country": "DE"}} if stack == "onprem" else {}
    problems = {each.path: each for each in refused(country, stack, residency={"allowed": allowed})}
    assert (problems[path].got, problems[path].allowed) == (got, ", ".join(allowed))


def test_an_exemption_from_a_policy_also_applies_to_the_component() -> None:
    output = {"owner": "ml", "reason": "short jobs", "expires": "2099-01-01"}
    exempt = {"policy": "spot-fallback", "resource": "trainyard:infra:AzureCluster::*", **output}
    stack = parse({**shipped("azure"), "queues": NO_SPOT})
    check_stack(stack, Run("team", "dev", config={"trainyard:exemptions": json.dumps([exempt])}))
    (problem,) = refused({}, exemptions=[{**exempt, "expires": "soon"}])
    assert problem.path == "stack" and "exemptions[0].expires" in problem.got


def test_a_fleets_worker_outside_of_the_declared_residency_is_refused() -> None:
    file = yaml.safe_load((ROOT / "stacks/Pulumi.hybrid.yaml").read_text())["config"]
    run = Run("team", "dev", config={"trainyard:residency": json.dumps({"allowed": ["in:eu"]})})
    problem = problem_of(lambda: COMPONENTS[f"{MODULE}Fleet"].read({"fleet": file[FLEET_KEY]}, run))
    assert (problem.path, problem.got) == ("fleet.workers[0].place", "us-east-2")


def test_a_host_that_cannot_have_the_cluster_is_warned_of_at_the_preview_and_refused_at_the_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A preview may run on another host, or before a cluster in the way is taken down."""
    taken = Problem("target.network.node_cidr", "10.89.0.0/24", "another", "write 10.89.1.0/24")

    def check_host(*_: object) -> None:
        raise HostError([taken])

    messages: list[str] = []
    monkeypatch.setattr(needs, "check_host", check_host)
    monkeypatch.setattr(pulumi.log, "warn", messages.append)
    stack = parse(shipped("local"))
    needs.warn_or_refuse_host(stack, must_fit=False)
    refused = str(replace(taken, path="stack.target.network.node_cidr"))
    assert messages == [f"`pulumi up` on this host will be refused: {refused}"]
    with pytest.raises(HostError) as error:
        needs.warn_or_refuse_host(stack, must_fit=True)
    assert _status(error.value).message == refused


def test_a_preview_provides_missing_artifacts_and_an_update_verifies_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To verify all files would take a fifth of a preview's time."""
    asked: list[set[str]] = []
    monkeypatch.setattr(Toolchain, "ensure", lambda _, *names: asked.append(set(names)))
    monkeypatch.setattr(Toolchain, "find", lambda _, name: None if name == "env/training" else ROOT)
    monkeypatch.setattr(Artifacts, "from_environment", lambda: None)
    monkeypatch.setenv("PATH", os.environ["PATH"])
    for preview in (True, False):
        needs.provide(parse(shipped("local")), print, is_preview=preview)
    assert asked[0] == {"env/training"}
    assert "image/trainer-manager" in asked[1] and "image/training-operator" not in asked[1]
    assert asked[1] >= {"env/training", "binary/helm", *CHART_PARTS, *CLUSTER_PARTS}


def test_components_of_known_and_of_unknown_values_are_distinguished() -> None:
    unknown = pulumi.UNKNOWN

    async def known() -> list[Any]:
        given = [{"pools": [1, "a"]}, {"pools": [unknown]}, pulumi.Output.from_input({"pools": [1]})]
        return [await _known(value) for value in given]

    assert asyncio.run(known()) == [{"pools": [1, "a"]}, unknown, {"pools": [1]}]


def test_a_secret_is_refused_in_a_job_and_warned_of_in_a_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole team can read a TrainJob's environment, and so can all who can read the state."""

    secret = {rpc._special_sig_key: rpc._special_secret_sig, "value": "hidden"}
    output = {rpc._special_sig_key: rpc._special_output_value_sig, "value": {"TOKEN": secret, "SEED": "1"}}
    paths = list(_secrets_in({"environment": output, "command": ["a"]}, ("job",)))
    problem = problem_of(lambda: COMPONENTS[f"{MODULE}TrainingJob"].on_secrets(paths))
    assert (problem.path, problem.got) == ("job.environment.TOKEN", "a secret")
    assert "job.secrets" in problem.fix
    messages: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", messages.append)
    COMPONENTS[f"{MODULE}Cluster"].on_secrets(["stack.target.account"])
    assert messages[0].startswith("stack.target.account: a secret, which")


def test_providers_that_a_component_does_not_use_are_warned_of() -> None:
    assert "no effect here (aws, kubernetes)" in unused_providers_warning(["kubernetes", "trainyard", "aws"])
    assert unused_providers_warning(["trainyard"]) == ""
    assert [name for name, kind in COMPONENTS.items() if not kind.makes_providers] == [f"{MODULE}TrainingJob"]


def test_a_plan_without_a_policy_pack_shows_how_to_add_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path))
    assert f"pulumi preview --policy-pack {ROOT / 'policies'}" in no_policy_warning(RUN)
    assert "pulumi up --policy-pack" in no_policy_warning(replace(RUN, dry_run=False))
    presence.announce("team", "dev", {"PULUMI_HOME": str(tmp_path)})
    assert no_policy_warning(RUN) == ""
    assert no_policy_warning(replace(RUN, name="prod"))
    presence.retract("team", "dev", {"PULUMI_HOME": str(tmp_path)})
    assert no_policy_warning(RUN)


def test_a_pack_that_was_killed_evaluates_nothing(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    presence.announce("team", "dev", {"PULUMI_HOME": str(tmp_path)})
    (file,) = tmp_path.rglob("*.judging")
    file.write_text(str(ended.pid))
    assert not presence.is_evaluating("team", "dev", {"PULUMI_HOME": str(tmp_path)})


def test_the_repository_has_no_symbolic_link_since_the_engine_refuses_them() -> None:
    listed = capture(["git", "ls-files", "-s"], cwd=ROOT, check=True)
    assert not [line for line in listed.stdout.splitlines() if line.startswith("120000")]
