"""Benchmark: latency that the admission policies of team namespaces add to creating a pod.

It uses a real API server. The same pod is created in a dry run in a team's namespace and in one that no
policy of ours selects; both have Pod Security's level `restricted`.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure, Repeats, in_both_orders
from infra.common import names
from infra.common.artifacts import LINKS
from infra.stackfile import load
from tests.infra.api_server import JOB_CONTROLLER, BareServer, Manifest, api_server
from tests.infra.plan import plan, stack_file
from tests.processes import wait_for

ROUNDS = 200
"""Rounds; each takes both orders of the arms, so 400 pods of each arm are created."""
WARM = 100
TEAM, OPEN = "team-research", "open"
POLICY = "ValidatingAdmissionPolicy"
KINDS = ("Namespace", "ConfigMap", POLICY, f"{POLICY}Binding")


def measure() -> list[Figure]:
    """Create pods in both namespaces, alternating."""
    with (
        tempfile.TemporaryDirectory(prefix="trainyard-admission-") as folder,
        api_server(Path(folder)) as server,
    ):
        _set_up(server)
        arms = {name: partial(_milliseconds, server, _pod(name)) for name in (TEAM, OPEN)}
        for arm in arms.values():
            _warm(arm)
        taken = in_both_orders(arms, ROUNDS)
    added = tuple(ours - bare for ours, bare in zip(taken[TEAM], taken[OPEN], strict=True))
    return [
        Figure("admission of a pod, added by all policies", Repeats("all policies", "ms", added), at_most=3.0)
    ]


def _set_up(server: BareServer) -> None:
    """Namespaces and admission of the stack of Azure: it has a fabric and spot."""
    found = plan(load(stack_file("azure")), LINKS / "rendered")
    for kind in KINDS:
        for name, each in found.named(kind).items():
            if kind != "ConfigMap" or name == "trainyard-admission/teams":
                server.apply(each)
    [team] = [each for each in found.named("Namespace").values() if each["metadata"]["name"] == TEAM]
    labels = {key: text for key, text in team["metadata"]["labels"].items() if key != names.TEAM_LABEL}
    server.apply({**team, "metadata": {"name": OPEN, "labels": labels}})
    spied = _pod(TEAM, env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])
    wait_for(lambda: "NVIDIA_VISIBLE_DEVICES" in server.refusal(spied, by=JOB_CONTROLLER))


def _pod(namespace: str, **container: object) -> Manifest:
    """Return a pod of a job as its controller makes it, with variables and volumes for rules to look at."""
    variables = [{"name": f"SETTING_{index}", "value": str(index)} for index in range(20)]
    main = {
        "name": "node",
        "image": f"registry.example.com/mine@sha256:{'1' * 64}",
        "env": variables,
        "resources": {"limits": {"nvidia.com/gpu": 8, "rdma/ib": 8}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "checkpoints", "mountPath": "/mnt/checkpoints"}],
        **container,
    }
    user = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {
        "restartPolicy": "Never",
        "securityContext": user,
        "nodeSelector": {names.POOL_LABEL: "spot"},
        "containers": [main],
        "volumes": [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": "checkpoints"}}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "trial", "namespace": namespace},
        "spec": spec,
    }


def _milliseconds(server: BareServer, pod: Manifest) -> float:
    start = time.perf_counter()
    refused = server.refusal(pod, by=JOB_CONTROLLER)
    taken = 1000 * (time.perf_counter() - start)
    assert refused == "", refused
    return taken


def _warm(arm: Callable[[], float]) -> None:
    for _ in range(WARM):
        arm()
