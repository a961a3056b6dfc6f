"""Templates and pipelines as a team uses them: `pulumi new` with a local path, then the scripts of its CI."""

import gzip
import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.paths import Paths
from infra.common.artifacts import ROOT
from rehearsal.aws.account import MotoAccount
from rehearsal.aws.models import client
from rehearsal.fake_provider import FakeProvider
from rehearsal.leaks import kinds_in
from rehearsal.rehearse import ANY_VERSION, with_common
from rehearsal.store import ResourceStore, StoredResource
from tests.e2e.engines import OwnFakeProvider, ProjectEngine, engine_for
from tests.e2e.pipelines import GITHUB_FILES, GITLAB, github_steps, gitlab, written
from tests.e2e.rehearsed import caches, install_plugin, leaks_reported, plain_environment, rehearse
from tests.processes import capture
from trainyard.stack.access import kubeconfig_for
from trainyard.stack.session import Session

pytestmark = pytest.mark.engine

TEMPLATES = ROOT / "templates"
CLUSTERS = ["aws", "azure", "coreweave", "gcp", "local", "onprem"]
IN_THE_SOAK = {"aws", "azure", "coreweave", "gcp", "local", "onprem"}
"""Templates whose preview by the package only `make soak` runs: tests/infra evaluates their plans, and the
pipelines' test deploys that of AWS by the package."""
REFUSED = "allowed: what the organisation grants"
"""Text of the message if a stack exempts itself."""
BIN = ROOT / ".venv/bin"
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"


def new_project(template: str, folder: Path) -> Path:
    """Render a template as `pulumi new` does."""
    project = folder / "project"
    path = f"{ROOT / '.trainyard/bin'}:{os.environ['PATH']}"
    command = ["pulumi", "new", str(TEMPLATES / template), "--generate-only", "--yes", "--dir", str(project)]
    answers = ["--name", "research", "--description", "Models of the research team"]
    environment = {**plain_environment(folder), "PATH": path, "PULUMI_HOME": str(folder / "home")}
    made = capture([*command, *answers], env=environment)
    assert made.returncode == 0, made.stderr
    return project


@pytest.mark.parametrize(
    "template",
    [pytest.param(name, marks=[pytest.mark.soak] if name in IN_THE_SOAK else []) for name in CLUSTERS],
)
def test_a_template_previews_through_the_package_under_the_policies(template: str, tmp_path: Path) -> None:
    project = new_project(template, tmp_path)
    texts = [file.read_text() for file in project.rglob("*") if file.is_file()]
    assert not [text for text in texts if "${PROJECT}" in text or "${DESCRIPTION}" in text]
    organisation = str(TEMPLATES / "pipelines/organisation.json")
    with engine_for(project, tmp_path) as engine:
        packs = ("--policy-pack", str(ROOT / "policies"), "--policy-pack-config", organisation)
        evaluated = engine.preview(*packs)
        shown = evaluated.stdout + evaluated.stderr
        assert evaluated.returncode == 0, shown[-3000:]
        assert "+  trainyard:index:Cluster cluster create" in shown
        assert "trainyard:infra:Platform" in shown and "no policy evaluates" not in shown
        if template == "onprem":
            answer = ("trainyard:stack.target.country", "FR")  # as `pulumi new` writes its answers
            assert engine.pulumi("config", "set", "-s", "dev", *answer).returncode == 0
            answered = engine.preview().stdout
            assert f"pulumi preview --policy-pack {ROOT / 'policies'}" in answered
            assert re.search(r'place *: "FR"', answered), answered


EVALUATED = ("--suppress-progress", "--policy-pack", str(ROOT / "policies"))


def test_a_training_job_previews_through_the_package_under_the_policies(tmp_path: Path) -> None:
    """The local queue of a team's first queue has the team's name, which is read from the cluster."""
    project = new_project("job", tmp_path)
    for local_queue, queue in (("research", "gpu"), ("research-amd", "amd")):
        kind, identity = "kueue.x-k8s.io/v1beta2:LocalQueue", f"team-research/{local_queue}"
        _have(tmp_path / "kubernetes", kind, identity, {"clusterQueue": queue})
    with engine_for(project, tmp_path, shared=True) as engine:
        evaluated = engine.preview(*EVALUATED)
        assert evaluated.returncode == 0, evaluated.stdout + evaluated.stderr
        job = "kubernetes:trainer.kubeflow.org/v1alpha1:TrainJob team-research/research"
        assert f"{job} create" in evaluated.stdout
        assert "no policy evaluates" not in evaluated.stdout
        for asked, local_queue in (("gpu", "research"), ("amd", "research-amd")):
            _change_job(project, queue=asked)
            found = engine.preview("--diff").stdout
            assert re.search(rf'kueue.x-k8s.io/queue-name *: "{local_queue}"', found), found
        _change_job(project, queue="spot")
        refused = engine.preview()
        assert refused.returncode != 0
        assert "resource 'team-research/research-spot' does not exist" in refused.stdout, refused.stdout


def _have(folder: Path, kind: str, identity: str, spec: Mapping[str, Any]) -> None:
    """Create an object in a fake cluster."""
    namespace, _, name = identity.rpartition("/")
    made = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
    urn = f"urn:pulumi:shared::cluster::kubernetes:{kind}::{identity}"
    ResourceStore(folder).put(StoredResource(urn, identity, made, made))


def _change_job(project: Path, **keys: Any) -> None:
    file = project / "Pulumi.yaml"
    program = yaml.safe_load(file.read_text())
    program["resources"]["training"]["properties"]["job"] |= keys
    file.write_text(yaml.safe_dump(program, sort_keys=False))


FLEET_STACKS = {"datacenter": {"place": "DE"}, "burst": {"place": "westeurope"}}
"""Projects of the template's clusters, hub and worker, with their stacks' outputs."""


def test_a_fleet_joins_the_stacks_of_clusters_through_the_package_under_the_policies(tmp_path: Path) -> None:
    """One fake serves all clusters; their stacks are real ones."""
    project = new_project("fleet", tmp_path)
    pod = {"containers": [{"name": "node", "image": f"registry.example.com/training@sha256:{0:064}"}]}
    node = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    runtime = {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [node]}}}
    kind = "trainer.kubeflow.org/v1alpha1:ClusterTrainingRuntime"
    _have(tmp_path / "kubernetes", kind, "torch-tcp", runtime)
    with engine_for(project, tmp_path, own=True, shared=True) as engine:
        for name, outputs in FLEET_STACKS.items():
            _bring_up_outputs(replace(engine, project=tmp_path / name), outputs)
        evaluated = engine.preview(*EVALUATED)
        assert evaluated.returncode == 0, evaluated.stdout + evaluated.stderr
        assert "✅ trainyard@" in evaluated.stdout
        assert "kueue.x-k8s.io/v1beta2:MultiKueueCluster" in evaluated.stdout
        for command, change in (("up", "created"), ("up", "unchanged"), ("destroy", "deleted")):
            ended = engine.pulumi(command, "-s", "dev", "--yes", "--skip-preview", "--suppress-progress")
            assert ended.returncode == 0, ended.stdout + ended.stderr
            assert f" {change}" in ended.stdout
            assert leaks_reported(ended) == []
        _bring_up_outputs(replace(engine, project=tmp_path / "burst"), {"place": "northeurope"})
        refused = engine.preview()
        assert refused.returncode != 0
        assert "workers[0].place" in refused.stdout and "northeurope, the stack's location" in refused.stdout


def _bring_up_outputs(engine: ProjectEngine, changed: Mapping[str, Any]) -> None:
    """Create a stack that has only the outputs of a cluster."""
    queues = {"research": {"namespace": "team-research", "localQueue": "research", "clusterQueue": "gpu"}}
    kubeconfig = {"fn::secret": "of a cluster that is none"}
    outputs = {"queues": queues, "datasets": {}, "runtimes": ["torch-tcp"], "kubeconfig": kubeconfig}
    program = {"name": engine.project.name, "runtime": "yaml", "outputs": {**outputs, **changed}}
    engine.project.mkdir(exist_ok=True)
    (engine.project / "Pulumi.yaml").write_text(yaml.safe_dump(program))
    engine.pulumi("stack", "init", "prod")
    up = engine.pulumi("up", "-s", "prod", "--yes", "--skip-preview")
    assert up.returncode == 0, up.stdout + up.stderr


@pytest.mark.soak
def test_a_training_job_passes_its_lifecycle_under_the_policies(tmp_path: Path) -> None:
    """On an existing cluster: up, a second up without changes, a change that replaces the job, destroy."""
    project = new_project("job", tmp_path)
    program = project / "Pulumi.yaml"

    def written(old: str, new: str) -> None:
        program.write_text(program.read_text().replace(old, new))

    with engine_for(project, tmp_path, shared=True) as engine:

        def run(command: str, *options: str) -> str:
            ended = engine.pulumi(command, "-s", "dev", "--yes", "--skip-preview", *options)
            assert ended.returncode == 0, ended.stdout + ended.stderr
            return ended.stdout

        assert engine.preview(*EVALUATED).returncode == 0
        assert "4 created" in run("up", *EVALUATED)
        assert "4 unchanged" in run("up", *EVALUATED)
        written("nodes: 2", "nodes: 3")
        assert "1 replaced" in run("up", *EVALUATED)
        assert "4 deleted" in run("destroy", EVALUATED[0])
        written("nodes: 3", "nodes: 0")
        assert "property job.nodes with value '{0}'" in engine.preview().stdout
        written("nodes: 0", "nodes: many")
        assert "Cannot assign type 'string' to type 'integer'" in engine.preview().stdout


def test_a_program_without_a_trainyard_cluster_is_evaluated_too(tmp_path: Path) -> None:
    project = new_project("policies", tmp_path)
    options = ("--policy-pack", str(ROOT / "policies"), "--policy-pack-config", "organisation.json")
    program = project / "Pulumi.yaml"
    with engine_for(project, tmp_path) as engine:
        assert engine.preview(*options).returncode == 0
        program.write_text(re.sub(r"@sha256:0+", ":latest", program.read_text()))
        refused = engine.preview(*options)
        assert refused.returncode != 0
        assert "kubernetes-images-pinned" in refused.stdout + refused.stderr


def test_the_kubeconfig_is_an_output_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = new_project("aws", tmp_path)
    program: dict[str, Any] = {"name": "research", "runtime": "yaml", "stackConfigDir": "stacks"}
    program["outputs"] = {"kubeconfig": {"fn::secret": "that of the project"}}
    (project / "Pulumi.yaml").write_text(yaml.safe_dump(program))
    with engine_for(project, tmp_path) as engine:
        assert engine.pulumi("stack", "init", "dev").returncode == 0
        assert engine.pulumi("up", "-s", "dev", "--yes", "--skip-preview").returncode == 0
    paths = {"TRAINYARD_STATE": str(tmp_path / "state"), "TRAINYARD_STACKS": str(project / "stacks")}
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    session = Session("dev", Paths.from_environment({**os.environ, **paths}))
    assert kubeconfig_for(session) == "that of the project"


@pytest.mark.soak
@pytest.mark.parametrize("template", [name for name in CLUSTERS if name != "aws"])
def test_a_template_passes_its_lifecycle_under_the_policies(
    template: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The policies have the pipelines' organisation file; the pipeline's tests do this for AWS's template."""
    monkeypatch.setenv("TRAINYARD_ORGANISATION", str(TEMPLATES / "pipelines" / "organisation.json"))
    report = rehearse(tmp_path, "dev", stacks=new_project(template, tmp_path) / "stacks")
    assert report["phases"][0]["name"] == "preview"
    assert report["phases"][-1]["name"] == "destroy"


def test_the_workflows_pass_their_linter(tmp_path: Path) -> None:
    environment = {**os.environ, "GOBIN": str(tmp_path)}
    subprocess.run(["go", "install", ACTIONLINT], env=environment, check=True, capture_output=True)
    workflows = tmp_path / ".github/workflows"
    workflows.mkdir(parents=True)
    for file in GITHUB_FILES:
        (workflows / file).write_text(written(f"github/{file}", "dev", "prod"))
    known = ["-ignore", 'unexpected key "queue"']  # of GitHub since May 2026, which 1.7.12 does not know
    linted = capture([tmp_path / "actionlint", *known, *workflows.iterdir()], cwd=tmp_path)
    assert linted.returncode == 0, linted.stdout


@pytest.mark.parametrize(
    ("change", "code"),
    [({}, 0), ({"rehearse": {"stage": ["test"], "script": "true"}}, 1)],
    ids=["as it is", "wrong"],
)
def test_the_pipeline_fits_gitlabs_own_schema(change: Mapping[str, Any], code: int, tmp_path: Path) -> None:
    pipeline = tmp_path / "gitlab-ci.yml"
    added = yaml.safe_dump(dict(change)) if change else ""
    pipeline.write_text(f"{written('gitlab/.gitlab-ci.yml')}\n{added}")
    schema = ["--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci"]
    checked = capture([BIN / "check-jsonschema", *schema, pipeline])
    assert checked.returncode == code, checked.stdout


@dataclass
class Runner:
    """A runner of a pipeline: the clone, the project beside it, and the variables."""

    workspace: Path
    environment: dict[str, str]

    def run(self, script: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a step in the shell that the pipelines use."""
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        environment = {**self.environment, **variables}
        ended = capture(command, cwd=self.workspace, env=environment, timeout=900)
        assert leaks_reported(ended) == []
        return ended


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "trainyard").symlink_to(ROOT)
    project = new_project("aws", workspace)
    install_plugin(tmp_path / "home", "aws", port=0)  # as if `prepare` had downloaded it; it is not started
    return Runner(
        workspace,
        {
            **plain_environment(tmp_path),
            "HOME": str(tmp_path / "home"),
            **caches("TRAINYARD_CACHE"),
            "STACK": "dev",
            "TRAINYARD": str(workspace / "trainyard"),
            "TRAINYARD_STACKS": str(project / "stacks"),
            "TRAINYARD_ORGANISATION": str(workspace / "trainyard/templates/pipelines/organisation.json"),
            "PYTHONPATH": str(ROOT),  # of the steps of `rehearse`
            "PLAN": str(workspace / "plan/plan.json"),
            "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
            "GITHUB_REPOSITORY": "team/research",
        },
    )


def test_a_pull_request_is_rehearsed(runner: Runner, tmp_path: Path) -> None:
    steps = github_steps("rehearse")
    assert list(steps) == ["Check the pin", "Prepare", "Rehearse, judge and price", "Summary", "Annotate"]
    for step in list(steps.values())[1:]:
        ended = runner.run(step)
        assert ended.returncode == 0, ended.stderr[-3000:]
    report = (runner.workspace / "rehearsal.md").read_text()
    assert report.startswith("### Rehearsal of `dev`: passed")
    assert "### Price of `research`" in report
    assert (tmp_path / "summary.md").read_text() == report
    assert kinds_in(report) == set()


def exempted(policy: str, resource: str = "aws:*::*") -> dict[str, str]:
    """Return an exemption that a change adds to its stack file."""
    details = {"owner": "research", "reason": "it is in the way", "expires": "2027-06-30"}
    return {"policy": policy, "resource": resource, **details}


def exempt(runner: Runner, policy: str) -> None:
    file = Path(runner.environment["TRAINYARD_STACKS"]) / "Pulumi.dev.yaml"
    data = yaml.safe_load(file.read_text())
    data["config"].setdefault("trainyard:exemptions", []).append(exempted(policy))
    file.write_text(yaml.safe_dump(data, sort_keys=False))


def test_a_refusal_fails_the_step_and_is_in_the_comment(runner: Runner) -> None:
    file = Path(runner.environment["TRAINYARD_STACKS"]) / "Pulumi.dev.yaml"
    file.write_text(file.read_text().replace("allowed: [us-east-2]", "allowed: [eu-*]"))
    (step,) = GITLAB["rehearse"]["script"]
    assert runner.run(step).returncode == 1
    report = (runner.workspace / "rehearsal.md").read_text()
    assert "### Rehearsal of `dev`: failed" in report
    assert "residency-region" in report
    exempt(runner, "residency-region")
    assert runner.run(step).returncode == 1
    assert REFUSED in (runner.workspace / "rehearsal.md").read_text()


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A fake of AWS with its provider where a runner has it; yields the runner's variables."""
    with ExitStack() as stack:
        account = stack.enter_context(MotoAccount("us-east-2"))
        made = []
        for package, cloud in with_common({"aws": account}).items():
            kind = OwnFakeProvider if package == "trainyard" else FakeProvider
            provider = kind([package], ANY_VERSION, cloud=cloud, folder=tmp_path / package)
            made.append(stack.enter_context(provider))
        [aws] = [each for each in made if each.packages == ("aws",)]
        install_plugin(tmp_path / "home", "aws", aws.port)
        attached = [each.environment()["PULUMI_DEBUG_PROVIDERS"] for each in made if each is not aws]
        yield {"PULUMI_DEBUG_PROVIDERS": ",".join(attached)}


def test_a_merge_is_brought_up_and_drift_found(runner: Runner, cloud: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "backend").mkdir()
    variables = {**cloud, "PULUMI_BACKEND_URL": (tmp_path / "backend").as_uri(), "SECRETS_PROVIDER": ""}

    def run(job: str) -> subprocess.CompletedProcess[str]:
        operation = "preview" if job == "plan" else job
        return runner.run(github_steps(job)[job.capitalize()], **variables, OPERATION=operation)

    def previewed() -> tuple[int, str]:
        return run("preview").returncode, (runner.workspace / "preview.md").read_text()

    assert runner.run(github_steps("prepare")["Prepare"]).returncode == 0
    first = run("plan")
    report = (runner.workspace / "plan.md").read_text()
    assert "The first `up` creates the stack `dev`" in report and "to create**" in report, first.stderr
    assert "first up" in run("up").stderr
    variables["TRAINYARD_FIRST_UP"] = "dev"
    up = run("up")
    assert up.returncode == 0, up.stdout[-3000:] + up.stderr[-3000:]
    _kill_in_an_update(tmp_path / "backend", "aws:ec2/vpc:Vpc")
    locked = run("up")
    assert locked.returncode != 0 and f"process 999999 of runner on {socket.gethostname()}" in locked.stderr
    unlocked = run("unlock")
    assert unlocked.returncode == 0, unlocked.stdout + unlocked.stderr
    assert run("plan").returncode == 0
    assert "**no change**" in (runner.workspace / "plan.md").read_text()
    assert run("drift").returncode == 0
    _delete_a_group_of_nodes()
    drifted = run_gitlab(runner, "drift", {**variables, "PULUMI_SECRETS_PROVIDER": ""}, tmp_path)
    assert drifted.returncode != 0
    assert "research-gpu" in drifted.stdout
    _scale(runner, 2)
    state = _content(tmp_path / "backend")
    refused = run("up")
    assert "the plan has none" in refused.stderr, "nobody was shown the second node"
    code, comment = previewed()
    assert (code, "### Preview of `dev`: passed" in comment) == (0, True), comment[-3000:]
    assert "trainyard:aws:NodeGroupSize" in comment
    exempt(runner, "cost-tags")
    for operation in ("preview", "up", "drift"):
        refused = run(operation)
        shown = refused.stdout + refused.stderr + (runner.workspace / "preview.md").read_text()
        assert (refused.returncode != 0, REFUSED in shown) == (True, True), shown[-3000:]
    assert _content(tmp_path / "backend") == state, "what was refused, and a preview, change nothing"


def _kill_in_an_update(backend: Path, kind: str) -> None:
    """Change the state to that of an engine that was killed on this host while it updated a resource."""
    (file,) = backend.glob(".pulumi/stacks/*/dev.json.gz")
    state = json.loads(gzip.decompress(file.read_bytes()))
    latest = state["checkpoint"]["latest"]
    (updated,) = (each for each in latest["resources"] if each["type"] == kind)
    latest["pending_operations"] = [{"resource": updated, "type": "updating"}]
    file.write_bytes(gzip.compress(json.dumps(state).encode()))
    holder = {"pid": 999999, "username": "runner", "hostname": socket.gethostname()}
    folder = backend / ".pulumi/locks/organization" / file.parent.name / "dev"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "killed.json").write_text(json.dumps({**holder, "timestamp": "2026-11-27T10:00:00Z"}))


def _scale(runner: Runner, nodes: int) -> None:
    file = Path(runner.environment["TRAINYARD_STACKS"]) / "Pulumi.dev.yaml"
    file.write_text(file.read_text().replace("on-demand, nodes: 1", f"on-demand, nodes: {nodes}"))


def _content(folder: Path) -> dict[str, bytes]:
    """Return the files of the state, without the history, to which a refused `up` adds an entry."""
    files = (folder / ".pulumi" / "stacks").rglob("*.json.gz")
    return {str(file): file.read_bytes() for file in files}


def run_gitlab(
    runner: Runner, name: str, variables: Mapping[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run all steps of a job that operates a cloud; return its result."""
    job = gitlab(name)
    of_job = {"CREDENTIALS": str(folder / "credentials"), "AWS_TOKEN": "of the pipeline"}
    of_job["OPERATION"] = job["variables"]["OPERATION"]
    ended = runner.run("\n".join([*job["before_script"], *job["script"]]), **variables, **of_job)
    assert (folder / "credentials").exists()
    (clean,) = job["after_script"]
    assert runner.run(clean, **of_job).returncode == 0
    assert not (folder / "credentials").exists()
    return ended


def test_gitlab_clones_the_commit_that_is_named(runner: Runner, tmp_path: Path) -> None:
    _, clean, clone, checkout, _ = GITLAB[".prepare"]["before_script"]
    commits = capture(["git", "rev-list", "--max-count=2", "HEAD"], cwd=ROOT, check=True)
    before = commits.stdout.split()[-1]
    where = tmp_path / "clone"
    where.mkdir()
    variables = {"TRAINYARD_REPOSITORY": str(ROOT), "TRAINYARD_COMMIT": before, "TRAINYARD": str(where)}
    for step in (clean, clone, checkout):
        ended = runner.run(step, **variables)
        assert ended.returncode == 0, ended.stderr
    assert (where / ".git" / "HEAD").read_text().strip() == before


def _delete_a_group_of_nodes() -> None:
    eks = client("eks", "us-east-2")
    (group,) = (name for name in eks.list_nodegroups(clusterName="research")["nodegroups"] if "gpu" in name)
    eks.delete_nodegroup(clusterName="research", nodegroupName=group)
