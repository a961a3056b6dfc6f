"""A rehearsal's report, as data, comment and terminal output: phases, retained resources, open questions."""

import io

from rich.console import Console

from infra.errors import Problem, TrainyardError
from rehearsal.rehearse import Phase, Refused, Rehearsal
from trainyard.commands.stack.rehearse.report import RehearsalReport, failure

VPC = "urn:pulumi:dev::p::trainyard:infra:AwsCluster$aws:ec2/vpc:Vpc::dev-vpc"
BUCKET = "urn:pulumi:dev::p::trainyard:infra:AwsCluster$aws:s3/bucket:Bucket::dev-bucket"
DONE = Rehearsal(
    (Phase("preview", {"create": 2}, 3.0), Phase("up", {"create": 2}, 4.25, ("pool gpu: new",))),
    (VPC, BUCKET),
    (BUCKET,),
    ("aws:ec2/vpc:Vpc dev-vpc was refused",),
    {"not in moto": ["aws:eks/addon:Addon"]},
    (Refused("new-role", "Role could not be assumed", "wait a minute", "somebody, https://x"),),
    ("spot-empty",),
)
REPORT = RehearsalReport("dev", DONE)


def test_the_data_has_order_time_and_what_is_not_proven() -> None:
    data = REPORT.data()
    assert data["seconds"] == 7.2
    assert [phase["pools"] for phase in data["phases"]] == [[], ["pool gpu: new"]]
    assert data["order"] == ["aws:ec2/vpc:Vpc dev-vpc", "aws:s3/bucket:Bucket dev-bucket"]
    assert data["keptAfterDestroy"] == ["aws:s3/bucket:Bucket dev-bucket"]
    assert "not in moto: aws:eks/addon:Addon" in data["notProven"]
    assert [each["fix"] for each in data["refused"]] == ["wait a minute"]
    assert data["survived"] == ["spot-empty"]


def test_the_comment_is_a_table_with_details() -> None:
    output = REPORT.markdown()
    assert output.startswith("### Rehearsal of `dev`: passed\n")
    assert "| up | 2 create | 4.2 |" in output
    assert "<summary>Changes of pools (1)</summary>\n\n- up: pool gpu: new" in output
    assert "2 resources (2 of aws)" in output
    assert "<summary>Not proven here (2)</summary>" in output


def test_the_terminal_shows_faults_and_what_is_retained() -> None:
    text = io.StringIO()
    REPORT.show(Console(file=text, width=200))
    assert "aws:ec2/vpc:Vpc dev-vpc was refused; the next `up` repaired it" in text.getvalue()
    assert "retained after destroy  aws:s3/bucket:Bucket dev-bucket" in text.getvalue()
    assert "refused  new-role: Role could not be assumed\n  fix: wait a minute" in text.getvalue()
    assert "survived spot-empty" in text.getvalue()


def test_a_failure_shows_every_problem() -> None:
    problems = [Problem("pools[0]", "```", "a machine", "write one"), Problem("a", "b", "c", "d")]
    output = failure("dev", TrainyardError(problems))
    assert "failed (2 problems)" in output
    assert "~~~~~~~~\npools[0]\n  got:     ```" in output
