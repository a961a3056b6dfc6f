"""Commands about jobs on a cluster that a context alone reaches, with the rights of a team's member.

The stack file has `kind: onprem`; it was never deployed, and there is no state.
"""

import json
from pathlib import Path

import pytest
import yaml

from tests.e2e.stack import Declaration, LocalStack
from tests.tables import table

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

MEMBER, NAMESPACE = "mei", "team-research"
PROGRAM = """
import os, torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
print("rank", os.environ["RANK"], "in", os.getcwd(), flush=True)
"""
"""With a collective, as a training program has."""


def as_datacenter(declaration: Declaration) -> None:
    """The same teams and queue, on machines that somebody else looks after."""
    declaration |= table(__file__, "datacenter")
    declaration["job"]["name"] = "by-context"
    declaration["settings"] |= {"steps": 60}


def member_of(cluster: LocalStack, folder: Path) -> Path:
    """Return the kubeconfig of someone who is a member of one team, and nothing else in the cluster."""
    cluster.kubectl("create", "serviceaccount", MEMBER, "-n", NAMESPACE)
    subject = f"--serviceaccount={NAMESPACE}:{MEMBER}"
    role = "--clusterrole=trainyard-team-member"
    cluster.kubectl("create", "rolebinding", MEMBER, role, subject, "-n", NAMESPACE)
    cluster.kubectl("create", "clusterrolebinding", MEMBER, "--clusterrole=trainyard-teams", subject)
    token = cluster.kubectl("create", "token", MEMBER, "-n", NAMESPACE).strip()
    admin = yaml.safe_load(cluster.kubeconfig.read_text())
    config = {
        **admin,
        "users": [{"name": MEMBER, "user": {"token": token}}],
        "contexts": [{"name": MEMBER, "context": {"cluster": admin["clusters"][0]["name"], "user": MEMBER}}],
        "current-context": MEMBER,
    }
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    file.chmod(0o600)
    return file


@pytest.fixture(scope="module")
def member(platform: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> LocalStack:
    """The stack file and the kubeconfig of a team's member; not even a state folder of the engine."""
    folder = tmp_path_factory.mktemp("member")
    stack = LocalStack(folder, name="datacenter")
    stack.kubeconfig = platform.kubeconfig
    stack.environment["KUBECONFIG"] = str(member_of(platform, folder))
    stack.declare(as_datacenter)
    return stack


def test_a_member_of_a_team_sees_jobs_and_no_nodes(member: LocalStack) -> None:
    output = member.trainyard("status").text
    assert "may not list them" in output
    assert "no jobs" in output


def test_a_job_is_submitted_and_followed_to_its_end(member: LocalStack) -> None:
    output = member.trainyard("run", str(member.job_file)).text
    assert "admitted to" in output
    assert "pods run on" in output
    assert "node 0 | training:" in output, "what the nodes write is shown"
    assert "by-context: complete" in output
    assert not (member.state / "pulumi" / ".pulumi").exists(), "no state was asked for"


def test_its_log_and_its_state_are_read_after_its_end(member: LocalStack) -> None:
    assert "training:" in member.trainyard("logs", "by-context").out
    assert "by-context" in member.trainyard("status").out


def test_another_one_is_cancelled_with_how_to_continue(member: LocalStack) -> None:
    member.trainyard("run", str(member.job_file), "--detach")
    output = member.trainyard("cancel", "by-context").text
    assert "trainyard run JOB.YAML --name by-context --run run-" in output
    member.wait_until(
        lambda: "by-context" not in member.names("trainjobs", "-n", NAMESPACE), "the job without its pods"
    )


def test_a_folder_of_code_runs_on_machines_that_others_look_after(member: LocalStack, tmp_path: Path) -> None:
    """By `kind: onprem`, and by the pools as the cluster reports them."""
    printed = member.run_folder(tmp_path, "folder", PROGRAM)
    assert "rank 0 in /mnt/job/code" in printed and "folder: complete" in printed
    job = member.get("trainjob", "folder", "-n", NAMESPACE)
    origin = json.loads(job["metadata"]["annotations"]["trainyard.dev/origin"])
    assert origin["command"] == ["python", "train.py"]
    cancelled = member.trainyard("cancel", "folder").text
    assert "/mnt/checkpoints/folder/run-" in cancelled


def test_a_context_needs_no_stack_file(platform: LocalStack, member: LocalStack) -> None:
    context = yaml.safe_load(platform.kubeconfig.read_text())["current-context"]
    member.environment["KUBECONFIG"] += f":{platform.kubeconfig}"
    output = member.trainyard("status", "--stack", "unwritten", "--context", context).out
    assert "on-demand-0" in output
    assert "no such job" not in output
    missing = member.trainyard("logs", "nobodys", "--stack", "unwritten", "--context", context, code=2).text
    assert "nobodys" in missing
