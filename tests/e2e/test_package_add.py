"""The package from a git URL at a version, as a team with no clone uses it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.provider.service import VERSION
from infra.stackfile import load
from tests.e2e.engines import engine_for, installed
from tests.e2e.git_server import Release, published, run
from tests.e2e.rehearsed import plain_environment

pytestmark = [pytest.mark.engine, pytest.mark.soak, pytest.mark.timeout(900)]

NEXT = "99.0.0"
INSTALLING = "the SDK of aws is not installed: installing boto3, pulumi-aws from requirements/host.txt"


@pytest.fixture
def release(tmp_path: Path) -> Iterator[Release]:
    with published(tmp_path, NEXT) as served:
        yield served


def test_a_tag_of_a_git_url_gives_a_project_and_the_sdk_of_its_target_when_that_is_named(
    release: Release, tmp_path: Path
) -> None:
    """The engine makes a clone and an environment from the lock; the component adds AWS's SDK, by hashes."""
    own = newcomer(tmp_path, release)
    project = new("aws", release, own, tmp_path, "trainyard:stack.target.account=210987654321")
    stack = load(project / "stacks/Pulumi.dev.yaml")
    assert getattr(stack.target, "account", "") == "210987654321"
    run("pulumi", "package", "add", f"{release.address}.git@{VERSION}", folder=project, variables=own)
    plugins = Path(own["PULUMI_HOME"]) / "plugins"
    [clone] = [each for each in plugins.iterdir() if each.is_dir() and "trainyard.git" in each.name]
    [packages] = (clone / ".venv").glob("lib/*/site-packages")
    assert sdks(packages) == {"pulumi_kubernetes"}
    with engine_for(project, tmp_path) as engine:
        variables = {**engine.environment, **own}
        first, second = (
            run("pulumi", "preview", "-s", "dev", folder=project, variables=variables) for _ in range(2)
        )
    assert INSTALLING in first and INSTALLING not in second
    assert sdks(packages) == {"pulumi_kubernetes", "pulumi_aws"}
    assert "trainyard:index:Cluster" in first and "aws:eks:Cluster" in first and "LocalQueue" in first
    assert f"--policy-pack {clone}/policies" in first.replace("\n", ""), "the pack of the same version"


def test_a_job_of_a_release_is_the_same_under_the_next_one(release: Release, tmp_path: Path) -> None:
    """The tag in Pulumi.yaml and `pulumi install` are all of an upgrade."""
    own = newcomer(tmp_path, release)
    job = new("job", release, own, tmp_path, "team=vision")
    shown = run("pulumi", "preview", "-s", "dev", "--diff", folder=job, variables=own)
    assert "::team-vision/research-job]" in shown
    with engine_for(job, tmp_path, shared=True) as engine:
        variables = {**engine.environment, **own}
        run("pulumi", "up", "-s", "dev", "--yes", "--skip-preview", folder=job, variables=variables)
        program = job / "Pulumi.yaml"
        program.write_text(program.read_text().replace(f".git@{VERSION}", f".git@{NEXT}"))
        run("pulumi", "install", folder=job, variables=variables)
        report = run("pulumi", "preview", "-s", "dev", "--json", folder=job, variables=variables)
    [made] = (Path(own["PULUMI_HOME"]) / "plugins").glob(f"*trainyard.git-v{NEXT}")
    assert (made / ".venv/bin/python").exists()
    found = json.loads(report)
    changed = {step["urn"].rpartition("::")[2] for step in found["steps"]}
    assert "team-vision/research-job" not in changed and found["changeSummary"]["same"] > 0


def new(template: str, release: Release, own: dict[str, str], folder: Path, *answer: str) -> Path:
    """Have the engine make a project, with one question answered and the defaults of the others."""
    project = folder / template
    name = f"research-{template}"
    names = ("--name", name, "--description", "Models", "--stack", "dev", "--dir", project, "--yes")
    address = f"{release.address}/tree/v{VERSION}/templates/{template}"
    shown = run("pulumi", "new", address, *names, "--config", *answer, folder=folder, variables=own)
    assert "Your new project is ready to go!" in shown
    return project


def newcomer(folder: Path, release: Release) -> dict[str, str]:
    """An engine that has its hosts and Kubernetes' provider, and may install what else it needs."""
    acquire = {"PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "false"}
    return {**plain_environment(folder), **installed(folder / "state"), **release.trusted, **acquire}


def sdks(packages: Path) -> set[str]:
    """Name the providers' SDKs that are installed there."""
    return {each.name for each in packages.glob("pulumi_*") if each.is_dir() and "-" not in each.name}
