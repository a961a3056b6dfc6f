"""The pipelines for GitHub and GitLab: which jobs may request credentials, and what must precede them."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.common.artifacts import ROOT
from infra.errors import InputError
from infra.targets.aws.account.rights import UP_SECONDS
from policies import pack
from policies.config import EvaluatedStack
from policies.exemptions import PolicyConfigError, parse_exemptions
from policies.security import exemptions
from tests.e2e.pipelines import (
    CALLER,
    COMMIT,
    GITHUB_FILES,
    GITLAB,
    GITLAB_JOBS,
    JOBS,
    OPERATE,
    REVIEW,
    STACKS,
    TEAM,
    github_steps,
    gitlab,
    written,
)
from tests.infra.golden import assert_matches
from tests.infra.test_templates import PROGRAMS, TEMPLATES, filled, project_of
from tests.processes import TIMEOUT_SECONDS, capture, wait_for
from tests.servers import QuietHandler, serving
from tests.tables import table
from trainyard.stack.pipeline import SERVICES, Pin, write_pipeline
from trainyard.stack.session import Session

PIPELINES = ROOT / "templates" / "pipelines"
FAKES = Path(__file__).parent / "pipelines"
CHECK = 'bash "$TRAINYARD/templates/pipelines/prepare.sh" check'
LOGIN = "aws-actions/configure-aws-credentials"
NODE_24 = {
    "actions/checkout": 5, "actions/cache": 5, "actions/setup-python": 6, "actions/upload-artifact": 6,
    "actions/download-artifact": 7, LOGIN: 6, "google-github-actions/auth": 3, "azure/login": 3,
}  # fmt: skip
"""The first release of each action on Node 24, by their release notes: runners have no Node 20."""


def environment(words: str, **variables: str) -> dict[str, str]:
    """Return a step's variables, each NAME=VALUE."""
    return {"PATH": os.environ["PATH"], **dict(word.split("=", 1) for word in words.split()), **variables}


def test_every_action_is_pinned_by_the_commit_of_a_release_whose_runtime_is_supported() -> None:
    for action in re.findall(
        r"uses: ([^.\n].+)", "".join(written(f"github/{file}") for file in GITHUB_FILES)
    ):
        found = re.fullmatch(r"([\w-]+/[\w-]+)(?:/\w+)?@[0-9a-f]{40} # v(\d+)\.\d+\.\d+", action)
        assert found is not None and int(found[2]) >= NODE_24[found[1]], action


def described(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return what decides on a job's rights."""
    keys = "if needs runs-on environment permissions concurrency rules tags id_tokens cache resource_group"
    steps = [
        each.get("run", "").partition("\n")[0] or each["uses"].partition("@")[0]
        for each in job.get("steps", ())
    ]
    secrets = sorted(set(re.findall(r"secrets\.(\w+)", json.dumps(job))))
    return {key: job[key] for key in keys.split() if key in job} | {"steps": steps, "secrets": secrets}


def test_what_each_job_may_do_is_as_listed() -> None:
    """Read the list like code: who runs where, with which token, environment and secret, after what."""
    files = {"all": CALLER, "review": REVIEW, "operate": OPERATE, "team": TEAM}
    jobs = {name: file["jobs"] for name, file in files.items()}
    jobs["gitlab"] = {name: gitlab(name) for name in GITLAB_JOBS}
    listed = {file: {name: described(job) for name, job in each.items()} for file, each in jobs.items()}
    assert_matches(yaml.safe_dump(listed, width=200, sort_keys=False), FAKES / "jobs.yaml")


def test_jobs_with_tokens_download_nothing_and_check_before_they_sign_in() -> None:
    with_token = [name for name, job in JOBS.items() if "id-token" in job.get("permissions", {})]
    for name in with_token:
        steps = described(JOBS[name])["steps"]
        assert "actions/cache" not in steps and "TRAINYARD_TOKEN" not in json.dumps(JOBS[name])
        assert steps.index("actions/cache/restore") < steps.index(CHECK) < steps.index(LOGIN)
    assert {name for name in GITLAB_JOBS if "id_tokens" in gitlab(name)} == {*with_token}
    assert all(gitlab(name)["before_script"][0] == CHECK for name in with_token)


def test_the_session_outlasts_the_up() -> None:
    (login,) = (step for step in JOBS["plan"]["steps"] if step.get("uses", "").startswith(LOGIN))
    assert f"github.job == 'up' && {UP_SECONDS}" in login["with"]["role-duration-seconds"]
    assert JOBS["up"]["timeout-minutes"] * 60 == UP_SECONDS


def test_both_pipelines_prepare_and_rehearse_by_the_same_commands_without_a_stored_key() -> None:
    prepare, rehearse, steps = (
        gitlab("prepare")["before_script"][-1],
        gitlab("rehearse"),
        github_steps("rehearse"),
    )
    assert prepare == rehearse["before_script"][-1] == steps["Prepare"]
    assert rehearse["script"][0].removesuffix(" > rehearsal.md") in steps["Rehearse, judge and price"]
    texts = "".join([*(written(f"github/{file}") for file in GITHUB_FILES), written("gitlab/.gitlab-ci.yml")])
    assert not re.search(r"SECRET_ACCESS_KEY|AWS_ACCESS_KEY_ID|credentials_json|CLIENT_SECRET|creds:", texts)
    for variables in (REVIEW["env"], OPERATE["env"], GITLAB["variables"]):
        folder, _, file = variables["TRAINYARD_ORGANISATION"].partition("/templates/pipelines/")
        assert (file, folder in ("$TRAINYARD", variables["TRAINYARD"])) == ("organisation.json", True)


@pytest.mark.parametrize("commit", ["", "main", "v0.1.0", COMMIT[:7], COMMIT])
def test_a_ref_that_is_empty_or_can_move_ends_before_anything_runs(commit: str) -> None:
    of_github = [JOBS[name]["steps"][0]["run"] for name in ("rehearse", "prepare")]
    of_gitlab = gitlab("prepare")["before_script"][0]
    for check, repository in ((of_github[0], "a/b"), (of_github[1], "a/b"), (of_gitlab, "https://a/b.git")):
        given = environment(f"TRAINYARD_REPOSITORY={repository} TRAINYARD_COMMIT={commit}")
        assert capture(["bash", "-e", "-c", check], env=given).returncode == (0 if commit == COMMIT else 2)


@pytest.mark.parametrize("service", SERVICES)
def test_each_services_files_are_written_whole_for_one_commit(service: str, tmp_path: Path) -> None:
    repository = "team/trainyard" if service == "github" else "https://example.com/trainyard.git"
    pin = Pin(repository, COMMIT, "o.json", f"python@sha256:{0:064}")
    with pytest.raises(InputError, match="--commit"):
        write_pipeline(Session("dev"), service, replace(pin, commit="main"), ["dev"], tmp_path)
    assert list(tmp_path.iterdir()) == []
    write_pipeline(Session("dev"), service, pin, ["dev"], tmp_path)
    texts = {
        str(file.relative_to(tmp_path)): file.read_text() for file in tmp_path.rglob("*.*") if file.is_file()
    }
    assert {*SERVICES[service].values()} - {"Jenkinsfile"} == {*texts}
    assert not re.search(r"@[A-Z_]+@", "".join(texts.values()))


@pytest.mark.parametrize(
    ("changed", "stacks"),
    [
        ("stacks/Pulumi.prod.yaml", "prod"), ("README.md", ""), ("Pulumi.yaml", "dev staging prod"),
        (".github/workflows/trainyard-operate.yml", "dev staging prod"), (None, "dev staging prod"),
        ("stacks/teams/vision.yaml", "staging"),
    ],
)  # fmt: skip
def test_only_stacks_whose_file_changed_are_operated(
    changed: str | None, stacks: str, tmp_path: Path
) -> None:
    commit, file = (
        "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m change",
        changed or "README.md",
    )
    change = f"mkdir -p $(dirname {file}); echo > {file}; git add {file}; {commit}"
    step = CALLER["jobs"]["changed"]["steps"][1]["run"]
    teams = "mkdir stacks; echo 'teams_from: teams' > stacks/Pulumi.staging.yaml"
    script = f"git init -q; {teams}; {commit}; BEFORE=${{BEFORE-$(git rev-parse HEAD)}}; {change}; {step}"
    given = environment("GITHUB_OUTPUT=output GITHUB_EVENT_NAME=push ASKED=", STACKS=" ".join(STACKS))
    capture(
        ["bash", "-ec", script],
        cwd=tmp_path,
        env=given | ({} if changed else {"BEFORE": "0" * 40}),
        check=True,
    )
    assert (tmp_path / "output").read_text().removeprefix("stacks=").split() == stacks.split()


BOT = "github-actions[bot]"
BODIES = [
    (BOT, "of another"),
    (BOT, "<!-- trainyard stack prod -->"),
    (BOT, None),
    ("mei", "<!-- trainyard stack dev -->"),
]
FOREIGN = [
    {"id": n, "number": n, "user": {"login": who}, "body": body, "state": "open"}
    for n, (who, body) in enumerate(BODIES)
]


def github_run(job: str, folder: Path, result: str = "") -> list[dict[str, Any]]:
    """Run the step that writes a comment or an issue; return all of them, without the foreign ones."""
    if not (folder / "gh").exists():
        (folder / "store").write_text(json.dumps(FOREIGN))
        shutil.copy(FAKES / "gh.sh", folder / "gh")
    words = (
        "GITHUB_REPOSITORY=a/b GITHUB_SERVER_URL=https://github.com GITHUB_RUN_ID=7 STACK=dev PULL_REQUEST=9"
    )
    given = environment(words, PATH=f"{folder}:{os.environ['PATH']}", RESULT=result)
    capture(["bash", "-ec", *github_steps(job).values()], cwd=folder, env=given, check=True)
    items: list[dict[str, Any]] = json.loads((folder / "store").read_text())
    assert items[: len(FOREIGN)] == FOREIGN
    return items[len(FOREIGN) :]


@pytest.mark.skipif(not shutil.which("jq"), reason="the fake of `gh` needs jq")
def test_a_stack_has_one_comment_and_one_issue_while_it_drifts(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports/preview.md").write_text("### Passed\n")
    none = "### No rehearsal of `dev`: see https://github.com/a/b/actions/runs/7"
    for rehearsal in (none, "### Failed"):
        (comment,) = github_run("comment", tmp_path)
        assert comment["body"].splitlines() == ["<!-- trainyard stack dev -->", "### Passed", rehearsal]
        (tmp_path / "reports/rehearsal.md").write_text("### Failed\n")
    (tmp_path / "drift.md").write_text("### Drift of `dev`\n")
    for result, states in {
        "success": [],
        "failure": ["open"],
        "failure ": ["open"],
        "success ": ["closed"],
    }.items():
        issues = github_run("issue", tmp_path, result.strip())[1:]
        assert [each["state"] for each in issues] == states


def test_on_gitlab_too_a_stack_has_one_note(tmp_path: Path) -> None:
    marker = "<!-- trainyard stack dev -->"
    foreign = [(7, "<!-- trainyard stack prod -->"), (8, marker)]
    notes = [*foreign]

    class Notes(QuietHandler):
        def do_GET(self) -> None:
            page = int((re.findall(r"[?&]page=(\d+)", self.path) or ["1"])[0])
            following = {"x-next-page": str(page + 1)} if page < len(notes) else {}
            author, body = notes[page - 1]
            note = {"id": page, "author": {"id": author}, "body": body}
            self.respond(200, {"id": 7} if self.path.endswith("/user") else [note], **following)

        def do_POST(self) -> None:
            note = 7, json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
            place = (
                slice(2, 2) if self.command == "POST" else slice(int(self.path[-1]) - 1, int(self.path[-1]))
            )
            notes[place] = [note]
            self.respond(200, {})

        do_PUT = do_POST

    with serving(Notes) as server:
        words = (
            "STACK=dev COMMENT_TOKEN=t CI_PROJECT_ID=3 CI_MERGE_REQUEST_IID=9 CI_API_V4_URL=http://127.0.0.1:"
        )
        given = environment(f"{words}{server.server_port}")
        for report in ("failed", "passed"):
            (tmp_path / "report.md").write_text(f"{report}\n")
            script = "\n".join(gitlab("comment")["script"])
            capture(["bash", "-ec", script], cwd=tmp_path, env=given, check=True)
            assert notes == [*foreign, (7, f"{marker}\n{report}\n")]


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


@pytest.fixture
def operated(clone: dict[str, str]) -> dict[str, str]:
    """Variables of `up` in a fake clone with a fake engine."""
    folder = Path(clone["TRAINYARD"])
    (folder / "templates").symlink_to(ROOT / "templates")
    (folder / ".venv/bin/python").symlink_to("/bin/true")
    (folder / ".venv/bin/trainyard").write_text("#!/bin/sh\n")
    shutil.copy(FAKES / "pulumi.sh", folder / "tools/pulumi")
    state = {"PULUMI_BACKEND_URL": "s3://state", "SECRETS_PROVIDER": "awskms://alias/state"}
    files = {
        "TRAINYARD_ORGANISATION": str(PIPELINES / "organisation.json"),
        "PLAN": str(folder / "plan.json"),
    }
    return {**clone, **state, **files, "OPERATION": "up", "CREDENTIALS": str(folder / "c")}


def calls(operated: Mapping[str, str]) -> list[str]:
    file = Path(operated["TRAINYARD"]) / "tools/calls"
    return file.read_text().splitlines() if file.exists() else []


GITHUB_STEP = ["bash", "-e", "-c", github_steps("up")["Up"]]
GITLAB_SCRIPT = [
    "bash",
    "-eo",
    "pipefail",
    "-c",
    "\n".join([gitlab("up")["before_script"][1], *gitlab("up")["script"]]),
]


@pytest.mark.parametrize(
    ("shell", "signals", "to_group"),
    [
        (GITHUB_STEP, [signal.SIGINT, signal.SIGTERM], False),
        (GITLAB_SCRIPT, [signal.SIGTERM], False),
        (GITLAB_SCRIPT, [signal.SIGTERM], True),
    ],
    ids=["github", "gitlab, the shell", "gitlab, its process group"],
)
def test_the_engine_gets_each_signal_of_a_cancellation_once(
    shell: list[str], signals: list[signal.Signals], to_group: bool, operated: dict[str, str]
) -> None:
    given = {**operated, "INTERRUPTS": str(len(signals)), "PULUMI_SECRETS_PROVIDER": "awskms://alias/state"}
    step = subprocess.Popen(shell, env=given, start_new_session=True)
    try:
        wait_for(lambda: "ready" in calls(operated) or step.poll() is not None)
        for number, each in enumerate(signals, 1):
            (os.killpg if to_group else os.kill)(step.pid, each)
            wait_for(lambda number=number: calls(operated).count("SIGINT") == number)  # type: ignore[misc]
        assert step.wait(TIMEOUT_SECONDS) != 0
    finally:
        step.kill()
    assert calls(operated)[-len(signals) - 1 :] == ["ready", *["SIGINT"] * len(signals)]


def operate(operated: Mapping[str, str], **variables: str) -> subprocess.CompletedProcess[str]:
    return capture(["bash", str(PIPELINES / "operate.sh")], env={**operated, **variables})


def test_up_creates_a_stack_only_if_there_is_none_and_the_first_up_is_wanted(
    operated: dict[str, str],
) -> None:
    denied, none = "error: read .pulumi/stacks: AccessDenied", "error: no stack named 'dev' found"
    for selected, first, message in ((denied, "dev", denied), (none, "", "first up")):
        ended = operate(operated, SELECTED=selected, TRAINYARD_FIRST_UP=first)
        assert (ended.returncode != 0, message in ended.stderr) == (True, True), ended.stderr
    assert set(calls(operated)) == {"stack select"}
    assert operate(operated, SELECTED=none, TRAINYARD_FIRST_UP="dev").returncode == 0
    assert "stack init" in calls(operated)


def test_up_on_a_bucket_needs_the_key_of_its_secrets(operated: dict[str, str]) -> None:
    refused = operate(operated, SECRETS_PROVIDER="")
    assert (refused.returncode != 0, "trainyard stack state-bucket" in refused.stderr) == (True, True)
    assert calls(operated) == []
    assert operate(operated, SECRETS_PROVIDER="", PULUMI_CONFIG_PASSPHRASE="of the team").returncode == 0


def test_on_gitlab_each_clouds_token_is_a_file_that_only_the_user_can_read(tmp_path: Path) -> None:
    pool, sub = (
        "projects/1/locations/global/workloadIdentityPools/gitlab/providers/project",
        "up@a.example.com",
    )
    given = environment(
        "AWS_TOKEN=of-aws GOOGLE_TOKEN=of-google AZURE_TOKEN=of-azure AWS_ROLE_ARN=arn:aws:iam::1:role/up"
        f" AZURE_CLIENT_ID=client AZURE_TENANT_ID=tenant AZURE_SUBSCRIPTION_ID=sub GOOGLE_PROVIDER={pool}"
        f" GOOGLE_SERVICE_ACCOUNT={sub} TRAINYARD={ROOT} CREDENTIALS={tmp_path / 'credentials'}"
    )
    script = ["bash", "-eo", "pipefail", "-c", f'source "{PIPELINES / "gitlab/sign-in.sh"}"; env -0']
    ended = capture(script, env=given)
    assert (ended.returncode, ended.stderr) == (0, "")
    found = dict(line.split("=", 1) for line in ended.stdout.split("\0") if line)
    assert not [name for name in found if name.endswith("_TOKEN")], "no program that follows sees a token"
    assert Path(found["AWS_WEB_IDENTITY_TOKEN_FILE"]).read_text() == "of-aws"
    assert Path(found["ARM_OIDC_TOKEN_FILE_PATH"]).read_text() == "of-azure"
    azure = [found[f"ARM_{name}"] for name in ("CLIENT_ID", "TENANT_ID", "SUBSCRIPTION_ID", "USE_OIDC")]
    assert azure == ["client", "tenant", "sub", "true"]
    google = json.loads(Path(found["GOOGLE_APPLICATION_CREDENTIALS"]).read_text())
    assert google["audience"] == f"//iam.googleapis.com/{pool}"
    assert f"serviceAccounts/{sub}:" in google["service_account_impersonation_url"]
    assert Path(google["credential_source"]["file"]).read_text() == "of-google"
    folder = tmp_path / "credentials"
    assert {file.stat().st_mode & 0o777 for file in (folder, *folder.iterdir())} == {0o600, 0o700}
    none = environment(f"TRAINYARD={ROOT} CREDENTIALS={tmp_path / 'none'}")
    assert capture(script, env=none).returncode == 0 and not [*(tmp_path / "none").iterdir()]


def program(folder: Path, project: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    """Write the pipeline's version of a project's program to `to`; the folder may have a stack file."""
    (folder / "to").mkdir()
    stack_file = folder / "Pulumi.dev.yaml"
    if not stack_file.exists():
        stack_file.write_text("config: {'trainyard:stack': {name: a}}")
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(dict(project)))
    command = [sys.executable, *map(str, (PIPELINES / "program.py", folder, ROOT, folder / "to", stack_file))]
    return capture(command, env={**os.environ, "PYTHONPATH": str(ROOT)})


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


@pytest.mark.parametrize(("change", "message"), table(__file__, "changed_programs"))
def test_a_changed_program_fails_the_pipeline_before_it_runs(
    change: Mapping[str, Any], message: str, tmp_path: Path
) -> None:
    ended = program(tmp_path, {**project_of("aws"), "name": "vision-models", **change})
    assert ended.returncode == 2
    assert message in ended.stderr
    assert list((tmp_path / "to").iterdir()) == []


EXAMPLES = {"aws": 4, "azure": 6, "coreweave": 1, "fleet": 0, "gcp": 4, "local": 0, "onprem": 3}
"""Template → values that nobody has; the others of its marks can be a user's."""


@pytest.mark.parametrize("template", PROGRAMS)
def test_what_nobody_replaced_ends_the_pipeline_all_at_once(template: str, tmp_path: Path) -> None:
    text = (ROOT / "templates" / template / "stacks/Pulumi.dev.yaml").read_text()
    (tmp_path / "Pulumi.dev.yaml").write_text(text.replace("${PROJECT}", "research"))
    ended = program(tmp_path, {**project_of(template), "name": "research"})
    assert (ended.returncode, ended.stderr.count("a value of yours")) == (
        2 * (EXAMPLES[template] > 0),
        EXAMPLES[template],
    )
