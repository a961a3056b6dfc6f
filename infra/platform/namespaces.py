"""Creates namespaces of operators, admission, storage, logs and teams, each with a Pod Security level."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pulumi

from infra.common import names
from infra.common.kubernetes_objects import KubernetesObject
from infra.platform.base import Layer, PlatformContext, metadata
from infra.platform.fabric import privileged_daemons
from infra.stackfile.queue import TeamSpec

EXCEPTION = "trainyard.dev/pod-security-exception"
"""Annotation of a team's namespace that is not `restricted`, with the reason and its source."""


class Namespaces(Layer):
    """`by_name` maps each namespace to its resource."""

    def __init__(
        self,
        context: PlatformContext,
        operators: Iterable[str],
        parent: pulumi.Resource,
        *,
        has_data: bool = False,
    ) -> None:
        """`has_data`: whether claims of teams and logs are volumes of their own, which would go with them."""
        teams = {names.team_namespace(team.name): team for team in context.stack.teams}
        exceptions = {name: _exception(team, context) for name, team in teams.items()}
        levels = {
            names.ADMISSION_NAMESPACE: "restricted",
            **dict.fromkeys(operators, "baseline"),
            # The only pod that runs as root here creates the volumes' folders; its only capability is CHOWN.
            names.STORAGE_NAMESPACE: "baseline",
            **{name: "privileged" if why else "restricted" for name, why in exceptions.items()},
            # The log collector reads logs in a folder of the node.
            **({names.LOGS_NAMESPACE: "privileged"} if context.stack.logs.kept else {}),
        }
        super().__init__(context, "namespaces", {"levels": levels}, parent)
        retained = {*teams, names.LOGS_NAMESPACE} if has_data else set()
        self.by_name: dict[str, KubernetesObject] = {
            name: self.add(
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": _metadata(name, level, teams.get(name), exceptions.get(name, "")),
                },
                options=pulumi.ResourceOptions(retain_on_delete=True) if name in retained else None,
            )
            for name, level in levels.items()
        }
        self.register_outputs({"names": list(levels)})


def _exception(team: TeamSpec, context: PlatformContext) -> str:
    """Return why the namespace is `privileged`: a daemon of its pools' fabric; empty: it is `restricted`."""
    fabrics = sorted({pool.fabric_class for pool in context.pools_of(team)})
    return "; ".join(
        f"{daemon.name} adds {', '.join(daemon.capabilities)} ({source})"
        for daemon, source in privileged_daemons(fabrics)
    )


def _metadata(name: str, level: str, team: TeamSpec | None, exception: str) -> dict[str, Any]:
    owner = {names.TEAM_LABEL: team.name} if team else {}
    about = metadata(name, labels={"pod-security.kubernetes.io/enforce": level, **owner})
    return {**about, "annotations": {EXCEPTION: exception}} if exception else about
