"""Preemption notices that are written outside of the catalogue are the catalogue's."""

import inspect
import re
from typing import get_args

import catalog
from infra.common.artifacts import ROOT
from trainyard.commands.local.preempt import preempt
from trainyard_train.config import TrainConfig
from trainyard_train.elasticity.instance_metadata import metadata_of

KUBERNETES_ONLY = {"coreweave", "local"}
"""Targets whose nodes have no metadata service: their pods get a notice as SIGTERM."""


def test_the_training_package_polls_every_metadata_service_and_has_its_notice() -> None:
    """It cannot import the catalogue: it runs where there is none."""
    polled = set(get_args(TrainConfig.model_fields["notices"].annotation)) - {"none"}
    assert {cloud: metadata_of(cloud).notice_seconds for cloud in polled} == {
        target: notice.seconds
        for target, notice in catalog.notices().items()
        if target not in KUBERNETES_ONLY
    }


def test_the_jobs_guide_has_every_targets_notice() -> None:
    table = (ROOT / "docs" / "jobs.md").read_text()
    written = dict(re.findall(r"^\| `(\w+)` \| (\d+)\b", table, re.MULTILINE))
    assert written == {target: str(notice.seconds) for target, notice in catalog.notices().items()}


def test_the_preempt_command_gives_the_embedded_clusters_notice() -> None:
    assert inspect.signature(preempt).parameters["notice"].default == catalog.notices()["local"].seconds
