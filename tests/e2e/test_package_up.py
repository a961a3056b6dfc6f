"""The package on embedded clusters: the guide as printed, and two clusters in one program with a job each."""

import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.progress import for_stream
from engine.provider.service import VERSION
from infra.common.artifacts import ROOT
from infra.stackfile.source import STACK_KEY
from local.cluster.network import run_folders
from rehearsal.leaks import leaks_in
from tests.e2e.engines import PLUGIN, installed
from tests.e2e.git_server import PRINTED, published
from tests.e2e.guide import blocks, paste
from tests.e2e.leftovers import exclusive, remove
from tests.e2e.machine import Traces
from tests.e2e.rehearsed import caches, plain_environment
from tests.processes import capture

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(1500)]

PAGE = ROOT / "docs/package.md"
GUIDED = "dev"
"""Name of the guide's cluster, which users have too: only one in a temporary folder is a test's."""
INSTALLED = ("pulumi", "pulumi-language-yaml", "pulumi-language-python", "pulumi-language-python-exec")
"""Programs on a reader's PATH, besides uv and Kubernetes' provider, which the engine would download."""

TEMPLATE = ROOT / "templates/local/stacks/Pulumi.dev.yaml"
JOB = yaml.safe_load((ROOT / "templates/local/job.yaml").read_text())
NAMES = ("near", "beside")
NETWORKS = {"near": {"node_cidr": "10.239.0.0/24"}, "beside": {"node_cidr": "10.242.0.0/24"}}
"""The only range that clusters of one host may not share."""


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables with a new home, a separate state, this host's caches and the installed programs."""
    state = tmp_path / "state"
    installed(state)
    for folder in ("home", "backend"):
        (tmp_path / folder).mkdir()
    with exclusive(*NAMES, progress=for_stream()):
        yield {
            **plain_environment(tmp_path),
            "HOME": str(tmp_path / "home"),
            # `file://~` is the user's home in the password database, whatever HOME is.
            "PULUMI_HOME": str(tmp_path / "home"),
            "PULUMI_BACKEND_URL": (tmp_path / "backend").as_uri(),
            "PATH": f"{ROOT / '.trainyard/bin'}:{ROOT / '.venv/bin'}:{os.environ['PATH']}",
            "TERM": "xterm",
            **caches("TRAINYARD_CACHE", "GOMODCACHE"),
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        }
        assert not {run for run in run_folders().values() if state in run.parents}, "clusters that are left"


@pytest.fixture
def newcomer(reader: dict[str, str], tmp_path: Path) -> Iterator[dict[str, str]]:
    """A reader without a clone: only an installed `pulumi` is on PATH."""
    programs, state = tmp_path / "programs", tmp_path / "state"
    programs.mkdir()
    for name in (*INSTALLED, "pulumi-resource-kubernetes"):
        (programs / name).symlink_to(ROOT / ".trainyard/bin" / name)
    (programs / "uv").symlink_to(ROOT / ".venv/bin/uv")
    ours = (str(ROOT / ".venv"), str(ROOT / ".trainyard"))
    system = [each for each in os.environ["PATH"].split(os.pathsep) if not each.startswith(ours)]
    remove(GUIDED, within=Path(tempfile.gettempdir()), progress=for_stream())
    yield {
        **{key: value for key, value in reader.items() if key not in ("VIRTUAL_ENV", "PULUMI_BACKEND_URL")},
        **caches("UV_CACHE_DIR", "PIP_CACHE_DIR"),
        "PULUMI_HOME": str(tmp_path / "home/.pulumi"),
        "PATH": os.pathsep.join([str(programs), *system]),
    }
    remove(GUIDED, within=state, progress=for_stream())


def test_the_commands_of_the_guide_work_from_up_to_down_as_printed(
    newcomer: dict[str, str], tmp_path: Path
) -> None:
    """Each command runs in a new home; only the repository's address is that of a local server."""
    folder, state = tmp_path / "folder", tmp_path / "state"
    folder.mkdir()
    with published(tmp_path) as release:
        own = release.address
        printed = [replace(each, text=each.text.replace(PRINTED, own), test="") for each in blocks(PAGE)]
        before = Traces.of(state, GUIDED)
        shown = paste(printed, folder, {**newcomer, **release.trusted}, folder / "none")
    assert shown.code == 0, shown.text[-6000:]
    new, up, job, destroy = (shown.of(each) for each in printed)
    assert "Your new project is ready to go!" in new
    assert f"trainyard@v{VERSION}" in up and "no policy evaluates" not in up
    assert "digits: complete" in job
    assert "deleted" in destroy
    assert leaks_in(dict.fromkeys(shown.text.splitlines(), "shown")) == []
    assert Traces.of(state, GUIDED).beyond(before) == {}
    assert not (state / GUIDED / "run").exists()
    assert list(folder.iterdir()) == []


def declared(name: str) -> dict[str, Any]:
    """The template's stack under another name, on a separate network, with one node of each kind."""
    stack: dict[str, Any] = yaml.safe_load(TEMPLATE.read_text())["config"][STACK_KEY]
    stack |= {"name": name, "target": {"kind": "local", "network": NETWORKS[name]}}
    stack["pools"] = [pool for pool in stack["pools"] if pool["capacity"] != "spot"]
    stack["queues"] = [{"name": "gpu", "flavors": [{"pool": "on-demand", "quota": 2}]}]
    return stack


def training_job(name: str, inputs: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """Return a job of a program on the cluster `near`."""
    job = {**JOB, "runtime": "torch-tcp", "name": name, **keys}
    options = {"providers": ["${api}"], "dependsOn": ["${near}"]}
    return {"type": "trainyard:TrainingJob", "properties": {"job": job, **inputs}, "options": options}


def test_two_clusters_of_one_program_have_a_job_each(reader: dict[str, str], tmp_path: Path) -> None:
    project, stacks = tmp_path / "project", tmp_path / "project/stacks"
    stacks.mkdir(parents=True)
    resources: dict[str, Any] = {}
    for name in NAMES:
        resources[name] = {"type": "trainyard:Cluster", "properties": {"stack": declared(name)}}
        (stacks / f"Pulumi.{name}.yaml").write_text(yaml.safe_dump({"config": {STACK_KEY: declared(name)}}))
    kubeconfig = {"kubeconfig": "${near.kubeconfig}"}
    resources["api"] = {"type": "pulumi:providers:kubernetes", "properties": kubeconfig}
    resources["job"] = training_job("declared", {"queues": "${near.queues}"}, queue="gpu")
    program = {"name": "two", "runtime": "yaml", "plugins": PLUGIN, "resources": resources}
    program["outputs"] = {name: f"${{{name}.endpoint}}" for name in NAMES}
    (project / "Pulumi.yaml").write_text(yaml.safe_dump(program))
    environment = {**reader, "PULUMI_CONFIG_PASSPHRASE": "two", "TRAINYARD_STACKS": str(stacks)}

    def run(*words: str, fails: bool = False) -> str:
        ended = capture(words, cwd=project, env=environment, timeout=700)
        assert bool(ended.returncode) == fails, (ended.stdout + ended.stderr)[-4000:]
        return ended.stdout

    run("pulumi", "stack", "init", "dev")
    try:
        run("pulumi", "up", "-s", "dev", "--yes", "--suppress-progress")
        assert len(set(json.loads(run("pulumi", "stack", "output", "-s", "dev", "--json")).values())) == 2
        (project / "job.yaml").write_text(yaml.safe_dump(JOB))
        assert "digits: complete" in run("trainyard", "run", "job.yaml", "-s", "beside")
        run("trainyard", "logs", "declared", "--follow", "-s", "near")
        [job] = json.loads(run("trainyard", "jobs", "-s", "near", "-o", "json"))
        assert (job["name"], job["state"]) == ("declared", "complete")
        run("pulumi", "preview", "-s", "dev", "--suppress-progress", "--expect-no-changes")
        resources["wrong"] = training_job("wrong", {}, queue="none-such")
        (project / "Pulumi.yaml").write_text(yaml.safe_dump(program))
        refused = run("pulumi", "preview", "-s", "dev", "--suppress-progress", fails=True)
        assert "resource 'team-research/research-none-such' does not exist" in refused
    finally:
        run("pulumi", "destroy", "-s", "dev", "--yes", "--suppress-progress")
    assert not [name for name in NAMES if (tmp_path / "state" / name / "run").exists()]
