"""What reviewers read of a plan, and what a later `up` may do."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.common.artifacts import ROOT
from infra.errors import InputError, TrainyardError
from tests.processes import capture
from trainyard.stack.plan import Operation, check_approved, read_plan, write_plan

PREFIX = "urn:pulumi:dev::research::trainyard:index:Cluster$kubernetes:"
LINK = "https://github.com/team/research/actions/runs/7"


def report(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the pipelines' report on files of a folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "STACK": "dev", "LINK": LINK}
    return capture(
        [sys.executable, ROOT / "templates/pipelines/report.py", *words], cwd=folder, env=environment
    )


def event(op: str, name: str, kind: str = "core/v1:ConfigMap", **metadata: object) -> str:
    return json.dumps(
        {"resourcePreEvent": {"metadata": {"op": op, "urn": f"{PREFIX}{kind}::{name}", **metadata}}}
    )


def test_a_report_of_any_plan_begins_with_what_is_deleted_and_fits_a_comment(tmp_path: Path) -> None:
    events = [event("create", f"team-{number:04}/limits") for number in range(1998)]
    events.append(event("create-replacement", "weights", "core/v1:PersistentVolume", diffs=["spec"]))
    events += [event("same", "x"), event("delete", "team-payments", "core/v1:Namespace")]
    (tmp_path / "events").write_text("\n".join(events))
    (tmp_path / "text").write_text("Diagnostics:\n  error: refused by residency-region\n")
    text = report(tmp_path, "whole", "Preview", "events", "text", "plan.json", "255").stdout
    lines = text.splitlines()
    assert lines[:3] == ["### Preview of `dev`: failed", "", "**1 to delete, 1 to replace, 1998 to create**"]
    changed = {
        "± core/v1:PersistentVolume weights replace  [spec]",
        "- core/v1:Namespace team-payments delete",
    }
    assert {*lines[5:7]} == changed
    assert lines[9] == "  error: refused by residency-region"
    shown = text.count("limits create")
    assert len(text) < 65_536 // 2 and 0 < shown < 1998
    assert lines[-1] == f"**{1998 - shown + 2} lines omitted**; all of them: {LINK}"
    assert len(read_plan(tmp_path / "plan.json")) == 2000
    (tmp_path / "events").write_text("")
    assert "**no change**" in report(tmp_path, "whole", "Preview", "events", "text", "plan.json", "0").stdout


UPDATE = Operation(f"{PREFIX}apps/v1:Deployment::web", "update", ("spec.replicas",))
CREATE = Operation(f"{PREFIX}core/v1:ConfigMap::web", "create")


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            Operation(UPDATE.urn, "delete"),
            r"- apps/v1:Deployment web delete\n  allowed: ~ apps/v1:Deployment web up",
        ),
        (Operation(UPDATE.urn, "update", ("spec.image", "spec.replicas")), r"\[spec.image, spec.replicas\]"),
        (Operation(f"{PREFIX}core/v1:Secret::new", "create"), "allowed: no change: the plan has none"),
    ],
)
def test_up_may_do_what_was_approved_or_less_and_nothing_else(
    other: Operation, message: str, tmp_path: Path
) -> None:
    write_plan(tmp_path / "plan.json", [UPDATE, CREATE])
    approved = read_plan(tmp_path / "plan.json")
    check_approved(approved, [CREATE])
    check_approved(approved, [UPDATE, CREATE])
    with pytest.raises(TrainyardError, match=message) as refused:
        check_approved(approved, [CREATE, other])
    assert len(refused.value.problems) == 1


@pytest.mark.parametrize("text", ["{}{", '[{"urn": 1}]', "3"])
def test_a_file_that_is_no_plan_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(InputError, match="preview --plan FILE"):
        read_plan(tmp_path / "plan.json")


def test_violations_are_annotations_of_the_stack_file(tmp_path: Path) -> None:
    results = [{"level": level, "ruleId": "r", "message": {"text": "a\nb"}} for level in ("error", "note")]
    (tmp_path / "policies.sarif").write_text(json.dumps({"runs": [{"results": results}]}))
    said = report(tmp_path, "annotate", "policies.sarif", "stacks/Pulumi.dev.yaml").stderr
    assert said == "::error file=stacks/Pulumi.dev.yaml,title=r::a%0Ab\n"
    assert report(tmp_path, "annotate", "none", "x").returncode == 0
