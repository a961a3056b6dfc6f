"""Rehearsals on the real engine: every stack, and everything that can go wrong on the way."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from infra.artifacts import ROOT

pytestmark = pytest.mark.e2e

PHASES = ["preview", "up", "up again", "refresh", "update", "unprotect", "destroy"]


def rehearse(folder: Path, *arguments: str, code: int = 0) -> Any:
    """Run the command with no credential; return its report, or what it says where it fails."""
    secret = ("AWS_", "GOOGLE_", "KUBECONFIG")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(secret)}
    ended = subprocess.run(
        [ROOT / ".venv/bin/trainyard", "rehearse", "-o", "json", *arguments],
        env={**environment, "TRAINYARD_STATE": str(folder / "state")},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == code, ended.stderr[-4000:]
    return json.loads(ended.stdout) if code == 0 else ended.stderr


def test_the_aws_stack_lives_its_whole_life(tmp_path: Path) -> None:
    report = rehearse(tmp_path, "aws", "--assume-checkpoint", "60")
    assert [phase["name"] for phase in report["phases"]] == PHASES
    assert report["resources"]["aws"] > 130
    assert "aws:eks/nodeGroup:NodeGroup training-on-demand" in report["order"]
    chain = report["criticalPath"]
    wanted = [step for step in chain if step.startswith(("ec2/vpc:", "eks/cluster:", "eks/nodeGroup:"))]
    assert [step.partition(":")[0] for step in wanted] == ["ec2/vpc", "eks/cluster", "eks/nodeGroup"]
    assert "aws:s3/bucket:Bucket training-bucket" in report["keptAfterDestroy"]
    assert report["price"]["usdPerHour"] > 0
    assert any("a checkpoint takes 60 s, which was assumed" in each for each in report["notProven"])
    assert any("aws:eks/addon:Addon" in each for each in report["notProven"])
    assert not (ROOT / "stacks" / "checkpoint.aws.json").exists()


def test_without_a_measured_checkpoint_the_policy_refuses(tmp_path: Path) -> None:
    told = rehearse(tmp_path, "aws", code=1)
    assert "trainyard/spot-checkpoint-time" in told


@pytest.mark.parametrize(
    "fault",
    [
        ["--fail", "aws:eks/nodeGroup:NodeGroup:2"],
        ["--insufficient-capacity", "gpu"],
    ],
    ids=["a creation fails", "no capacity"],
)
def test_after_a_fault_the_next_up_converges(fault: list[str], tmp_path: Path) -> None:
    report = rehearse(tmp_path, "aws-dev", *fault)
    assert len(report["faults"]) == 1
    assert [phase["name"] for phase in report["phases"]] == ["preview", "up after that", *PHASES[2:]]


def test_a_pool_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    told = rehearse(tmp_path, "aws-dev", "--insufficient-capacity", "spot", code=2)
    assert "system, gpu" in told
