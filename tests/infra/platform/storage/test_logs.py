"""The collector of pods' logs and the teams' readers: their rights, their mounts, and retention."""

import re
from pathlib import Path

from infra.platform.storage.logs import configuration
from infra.stackfile import Stack
from infra.stackfile.stack import LogsSpec
from tests.infra.plan import plan


def test_old_logs_are_deleted_after_the_stacks_retention(local: Stack, rendered: Path) -> None:
    found = plan(local.model_copy(update={"logs": LogsSpec(retention_days=7)}), rendered)
    template = found.named("CronJob")["trainyard-logs/retention"]["spec"]["jobTemplate"]["spec"]["template"]
    assert "-mtime +6 -delete" in template["spec"]["containers"][0]["command"][-1]


def test_a_stack_may_retain_no_logs(local: Stack, rendered: Path) -> None:
    found = plan(local.model_copy(update={"logs": LogsSpec(kept=False)}), rendered)
    assert not [each.name for each in found.resources if "trainyard-logs" in each.name]


def test_the_folder_of_a_log_names_its_job() -> None:
    """The kubelet names folders by namespace, pod and UID (`BuildPodLogsDirectory`)."""
    [read, *_] = configuration()["receivers"]["filelog"]["operators"]
    path = "/var/log/pods/team-research_digits-node-0-1-abcde_6b1c-2f/node/0.log.20261124-101112"
    found = re.match(read["regex"], path)
    assert found
    assert found.groupdict() == {
        "team": "research",
        "pod": "digits-node-0-1-abcde_6b1c-2f",
        "container": "node",
        "restart": "0",
    }
