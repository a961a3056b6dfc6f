"""The collector of pods' logs and the teams' readers: their rights, their mounts, and retention."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.platform.storage.logs import configuration
from infra.stackfile import Stack, load
from infra.stackfile.logs import LogsSpec
from tests.infra.plan import Plan, plan, stack_file


def pod_of(found: Plan, kind: str, name: str) -> Mapping[str, Any]:
    spec: Mapping[str, Any] = found.named(kind)[f"trainyard-logs/{name}"]["spec"]["template"]["spec"]
    return spec


def test_clouds_pull_the_publisher_s_image_by_digest(rendered: Path) -> None:
    found = plan(load(stack_file("aws")), rendered)
    [container] = pod_of(found, "DaemonSet", "collector")["containers"]
    assert re.search(r"opentelemetry-collector-contrib:[0-9.]+@sha256:[0-9a-f]{64}$", container["image"])


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
