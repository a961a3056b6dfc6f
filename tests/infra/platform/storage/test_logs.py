"""The collector of pods' logs and the teams' readers: their rights, their mounts, and retention."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.platform.storage.logs import configuration
from infra.stackfile import Stack, load
from infra.stackfile.logs import LogsSpec
from tests.infra.plan import Plan, plan, stack_file


@pytest.fixture(scope="module")
def logs_plan(local: Stack, rendered: Path) -> Plan:
    return plan(local, rendered)


def pod_of(found: Plan, kind: str, name: str) -> Mapping[str, Any]:
    spec: Mapping[str, Any] = found.named(kind)[f"trainyard-logs/{name}"]["spec"]["template"]["spec"]
    return spec


def test_the_collector_runs_on_every_node_without_root_and_writes_to_no_folder_of_it(logs_plan: Plan) -> None:
    pod = pod_of(logs_plan, "DaemonSet", "collector")
    assert "nodeSelector" not in pod
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert not pod["automountServiceAccountToken"]
    security = pod["securityContext"]
    assert (security["runAsNonRoot"], security["runAsUser"], security["runAsGroup"]) == (True, 1000, 0)
    [container] = pod["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"]
    of_node = {volume["name"] for volume in pod["volumes"] if "hostPath" in volume}
    assert [mount["readOnly"] for mount in container["volumeMounts"] if mount["name"] in of_node] == [True]


def test_a_team_s_reader_has_its_own_folder_and_cannot_write(logs_plan: Plan, local: Stack) -> None:
    for team in local.teams:
        pod = pod_of(logs_plan, "StatefulSet", f"team-{team.name}")
        [mount] = pod["containers"][0]["volumeMounts"]
        assert (mount["subPath"], mount["readOnly"]) == (team.name, True)


def test_no_pod_of_a_team_mounts_the_logs(logs_plan: Plan) -> None:
    claims = logs_plan.named("PersistentVolumeClaim")
    assert [name for name in claims if name.endswith("/logs")] == ["trainyard-logs/logs"]


def test_nothing_may_connect_to_the_log_collector(logs_plan: Plan) -> None:
    spec = logs_plan.named("NetworkPolicy")["trainyard-logs/closed"]["spec"]
    assert (spec["ingress"], spec["egress"], spec["podSelector"]) == ([], [], {})


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
