"""The pipelines for GitHub and GitLab: which jobs may request credentials, and what must precede them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.common.artifacts import ROOT
from policies import pack
from policies.config import EvaluatedStack
from policies.exemptions import PolicyConfigError, parse_exemptions
from policies.security import exemptions
from tests.infra.test_templates import PROGRAMS, TEMPLATES, filled, project_of
from tests.processes import capture

PIPELINES = ROOT / "templates" / "pipelines"
GITHUB: Mapping[str, Any] = yaml.safe_load((PIPELINES / "github/trainyard.yml").read_text())
GITLAB: Mapping[str, Any] = yaml.safe_load((PIPELINES / "gitlab/.gitlab-ci.yml").read_text())
OPERATIONS = ("preview", "up", "drift")
CHECK = 'bash "$TRAINYARD/templates/pipelines/prepare.sh" check'
OPERATE = 'bash "$TRAINYARD/templates/pipelines/operate.sh"'


def steps(job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = GITHUB["jobs"][job]["steps"]
    return found


def gitlab(name: str) -> dict[str, Any]:
    """Return a job of GitLab merged with what it extends, as GitLab does."""
    job = GITLAB[name]
    return {**gitlab(job["extends"]), **job} if "extends" in job else dict(job)


def test_every_action_is_pinned_by_the_commit_of_a_release() -> None:
    text = (PIPELINES / "github/trainyard.yml").read_text()
    used = re.findall(r"uses: (.+)", text)
    assert used
    for action in used:
        assert re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_on_github_only_operating_jobs_may_ask_for_a_token_and_they_download_nothing() -> None:
    may_ask = {name for name, job in GITHUB["jobs"].items() if "id-token" in job.get("permissions", {})}
    assert (may_ask, GITHUB["permissions"]) == (set(OPERATIONS), {"contents": "read"})
    for job in OPERATIONS:
        assert GITHUB["jobs"][job]["needs"] == "prepare"
        used = [step.get("uses", "").partition("@")[0] for step in steps(job)]
        assert "actions/cache/restore" in used
        assert "actions/cache" not in used
        assert steps(job)[used.index("actions/cache/restore")]["with"]["fail-on-cache-miss"] is True
        commands = [step["run"].partition(" >")[0] for step in steps(job) if "run" in step]
        assert commands == [CHECK, OPERATE]
        login = used.index("aws-actions/configure-aws-credentials")
        assert [step.get("run") for step in steps(job)].index(CHECK) < login


def test_on_gitlab_only_operating_jobs_have_tokens_and_they_download_nothing() -> None:
    names = [
        name for name in GITLAB if not name.startswith(".") and name not in ("stages", "variables", "default")
    ]
    assert {name for name in names if "id_tokens" in gitlab(name)} == set(OPERATIONS)
    for name in OPERATIONS:
        job = gitlab(name)
        assert (job["needs"], job["cache"]["policy"]) == (["prepare"], "pull")
        assert job["cache"]["paths"] == GITLAB["prepare"]["cache"]["paths"]
        assert job["before_script"] == [CHECK, 'source "$TRAINYARD/templates/pipelines/gitlab/sign-in.sh"']
        assert OPERATE in job["script"][0]


def test_both_pipelines_prepare_and_rehearse_by_the_same_commands() -> None:
    prepare = next(step["run"] for step in steps("prepare") if step.get("name") == "Prepare")
    assert gitlab("prepare")["before_script"][-1] == gitlab("rehearse")["before_script"][-1] == prepare
    rehearsed = next(step["run"] for step in steps("rehearse") if "Rehearse" in step.get("name", ""))
    assert gitlab("rehearse")["script"] == [rehearsed.strip()]


def test_forks_get_no_private_runner_no_environment_and_no_comment() -> None:
    own = "github.event.pull_request.head.repo.full_name == github.repository"
    assert GITHUB["jobs"]["rehearse"]["runs-on"] == "ubuntu-24.04"
    for name, job in GITHUB["jobs"].items():
        if name != "rehearse":
            assert own in job["if"] or job["if"] in (
                f"github.event_name == '{it}'" for it in ("push", "schedule")
            )
    assert GITHUB["jobs"]["comment"]["permissions"] == {"pull-requests": "write"}
    same = "$CI_MERGE_REQUEST_SOURCE_PROJECT_ID == $CI_PROJECT_ID"
    for name in ("preview", "comment", "prepare"):
        assert same in gitlab(name)["rules"][0]["if"]


def test_the_one_stored_secret_is_coreweaves_token() -> None:
    texts = [(PIPELINES / name).read_text() for name in ("github/trainyard.yml", "gitlab/.gitlab-ci.yml")]
    assert set(re.findall(r"secrets\.(\w+)", "".join(texts))) == {"COREWEAVE_API_TOKEN"}
    assert not re.search(
        r"SECRET_ACCESS_KEY|AWS_ACCESS_KEY_ID|credentials_json|CLIENT_SECRET|creds:", "".join(texts)
    )


def test_jobs_that_operate_a_cloud_run_on_runners_that_reach_the_api_server() -> None:
    for name in ("prepare", *OPERATIONS):
        assert GITHUB["jobs"][name]["runs-on"] == "${{ vars.TRAINYARD_RUNNER || 'trainyard' }}"
        assert gitlab(name)["tags"] == ["$TRAINYARD_RUNNER"]
    environments = {name: GITHUB["jobs"][name].get("environment") for name in GITHUB["jobs"]}
    assert environments == {
        "prepare": None, "rehearse": None, "comment": None,
        "preview": "preview", "up": "production", "drift": "production",
    }  # fmt: skip


def test_the_organisations_file_is_in_the_clone_in_both() -> None:
    file = "templates/pipelines/organisation.json"
    variables = GITLAB["variables"]
    assert variables["TRAINYARD_ORGANISATION"] == "$TRAINYARD/$TRAINYARD_ORGANISATION_FILE"
    assert variables["TRAINYARD_ORGANISATION_FILE"] == file
    inside = "${{ github.workspace }}/trainyard/"
    variable = GITHUB["env"]["TRAINYARD_ORGANISATION"]
    assert variable == f"{inside}${{{{ vars.TRAINYARD_ORGANISATION_FILE || '{file}' }}}}"
    assert GITHUB["env"]["TRAINYARD"] == inside.rstrip("/")


def granted() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((PIPELINES / "organisation.json").read_text())["exemptions"]
    return found


@pytest.mark.parametrize("template", TEMPLATES)
def test_shipped_templates_need_no_exemption(template: str) -> None:
    config = filled(template, "vision")["config"]
    assert isinstance(config, dict)
    assert "trainyard:exemptions" not in config


def evaluated(own: object) -> EvaluatedStack:
    """Return a stack that declares exemptions, as the pack reads it with the shipped organisation file."""
    given = granted()
    assert given["from_stack"] is False
    assert set(given) <= set(exemptions.POLICY.parameters)
    organisation = pack_organisation(given)
    return EvaluatedStack(config={"trainyard:exemptions": json.dumps(own)}, organisation=organisation)


def pack_organisation(given: Mapping[str, Any]) -> Any:
    from policies.analyzer import _organisation

    assert {each.policy for each in parse_exemptions(given["granted"], "granted")} <= {
        policy.name for policy in pack.POLICIES
    }
    return _organisation({"exemptions": given})


def test_a_stack_cannot_exempt_itself_under_the_shipped_organisation_file() -> None:
    details = {"owner": "research", "reason": "it is in the way", "expires": "2027-06-30"}
    own = {"policy": "kubernetes-images-pinned", "resource": "kubernetes:*::*", **details}
    with pytest.raises(
        PolicyConfigError,
        match=r"exemptions\[0\]: got kubernetes-images-pinned for kubernetes:\*::\*; allowed",
    ):
        _ = evaluated([own]).exemptions


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables of a fake clone of one commit, whose `make` and `trainyard` do nothing."""
    for folder in (".trainyard", ".venv/bin", "stacks", "tools"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "stacks" / "Pulumi.dev.yaml").write_text("config: {}\n")
    for program in ("tools/make", "tools/git", ".venv/bin/trainyard"):
        (tmp_path / program).write_text("#!/bin/sh\necho 0123456789abcdef\n")
        (tmp_path / program).chmod(0o755)
    variables = {"TRAINYARD": str(tmp_path), "TRAINYARD_STACKS": str(tmp_path / "stacks"), "STACK": "dev"}
    yield {**variables, "PATH": f"{tmp_path / 'tools'}:{os.environ['PATH']}"}


def prepare(clone: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(PIPELINES / "prepare.sh"), *arguments]
    return capture(command, env=dict(clone))


def test_an_operating_job_fails_if_nothing_is_prepared(clone: dict[str, str]) -> None:
    refused = prepare(clone, "check")
    assert refused.returncode == 3
    assert "got:     nothing" in refused.stderr
    assert "run the pipeline again" in refused.stderr


def test_a_preparation_is_for_one_commit_one_folder_and_one_stack_file(clone: dict[str, str]) -> None:
    assert prepare(clone).returncode == 0
    assert prepare(clone, "check").returncode == 0
    (Path(clone["TRAINYARD_STACKS"]) / "Pulumi.dev.yaml").write_text("config: {more: here}\n")
    assert prepare(clone, "check").returncode == 3


def sign_in(folder: Path, **variables: str) -> dict[str, str]:
    """Return the variables of GitLab's jobs after the sign-in."""
    script = f'source "{PIPELINES / "gitlab/sign-in.sh"}"; env -0'
    tokens = {"AWS_TOKEN": "of aws", "GOOGLE_TOKEN": "of google", "AZURE_TOKEN": "of azure"}
    environment = {"PATH": os.environ["PATH"], "CREDENTIALS": str(folder), **tokens, **variables}
    ended = capture(["bash", "-eo", "pipefail", "-c", script], env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    found = dict(line.split("=", 1) for line in ended.stdout.split("\0") if line)
    assert not set(tokens) & set(found), "no program that follows sees a token"
    return {key: value for key, value in found.items() if key not in environment}


def test_on_gitlab_each_clouds_token_is_a_file_that_only_the_user_can_read(tmp_path: Path) -> None:
    folder = tmp_path / "credentials"
    assert set(sign_in(folder)) <= {"PWD", "SHLVL", "_"}
    assert list(folder.iterdir()) == []
    aws = sign_in(folder, AWS_ROLE_ARN="arn:aws:iam::123456789012:role/up")
    assert Path(aws["AWS_WEB_IDENTITY_TOKEN_FILE"]).read_text() == "of aws"
    azure = sign_in(folder, AZURE_CLIENT_ID="client", AZURE_TENANT_ID="tenant", AZURE_SUBSCRIPTION_ID="sub")
    assert Path(azure["ARM_OIDC_TOKEN_FILE_PATH"]).read_text() == "of azure"
    assert {azure[name] for name in ("ARM_CLIENT_ID", "ARM_TENANT_ID", "ARM_USE_OIDC")} == {
        "client",
        "tenant",
        "true",
    }
    pool = "projects/1/locations/global/workloadIdentityPools/gitlab/providers/project"
    gcp = sign_in(folder, GOOGLE_PROVIDER=pool, GOOGLE_SERVICE_ACCOUNT="up@example.iam.gserviceaccount.com")
    written = json.loads(Path(gcp["GOOGLE_APPLICATION_CREDENTIALS"]).read_text())
    assert written["audience"] == f"//iam.googleapis.com/{pool}"
    assert (
        "serviceAccounts/up@example.iam.gserviceaccount.com:" in written["service_account_impersonation_url"]
    )
    assert Path(written["credential_source"]["file"]).read_text() == "of google"
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700


def program(folder: Path, project: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    """Write the pipeline's version of a project's program to `to` in the folder."""
    (folder / "to").mkdir()
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(dict(project)))
    command = [sys.executable, *map(str, (PIPELINES / "program.py", folder, ROOT, folder / "to"))]
    return capture(command)


@pytest.mark.parametrize("template", PROGRAMS)
def test_a_projects_program_is_its_templates_with_the_package(template: str, tmp_path: Path) -> None:
    tags = {"config": {"pulumi:tags": {"value": {"pulumi:template": template}}}}
    project = {**project_of(template), "name": "vision-models", **tags}
    ended = program(tmp_path, project)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert yaml.safe_load((tmp_path / "to/Pulumi.yaml").read_text()) == {
        **{key: project[key] for key in ("runtime", "resources", "outputs")},
        "name": "vision-models",
        "stackConfigDir": "stacks",
        "plugins": {"providers": [{"name": "trainyard", "path": str(ROOT / ".trainyard/bin")}]},
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"runtime": "python"},
            "those of one of templates/*/Pulumi.yaml in the pipeline's copy of Trainyard",
        ),
        (
            {"resources": {"mine": {"type": "command:local:Command"}}},
            "put your own resources into a separate project",
        ),
        ({"outputs": {"token": {"fn::readFile": "/proc/self/environ"}}}, "got:     'values of no template'"),
        ({"packages": {"trainyard": "https://example.com/trainyard.git@0.9.0"}}, "0.1.0, the pipeline's own"),
        ({"plugins": {"providers": [{"name": "trainyard", "path": "bin"}]}}, "Pulumi.yaml: plugins"),
        ({"config": {"trainyard:stack": {}}}, "write it into a stack file"),
        ({"name": "../other"}, "rename the project"),
    ],
)
def test_a_changed_program_fails_the_pipeline_before_it_runs(
    change: Mapping[str, Any], message: str, tmp_path: Path
) -> None:
    ended = program(tmp_path, {**project_of("aws"), "name": "vision-models", **change})
    assert ended.returncode == 2
    assert message in ended.stderr
    assert list((tmp_path / "to").iterdir()) == []
