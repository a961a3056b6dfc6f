"""Creates namespaces of operators, admission, storage, logs and teams, each with a Pod Security level."""

from collections.abc import Iterable
from typing import Any

import pulumi

from infra.common import names
from infra.common.kubernetes_objects import ObjectPatch
from infra.controller.main import NAME as CONTROLLER
from infra.platform.base import Layer, PlatformContext, metadata
from infra.platform.fabric import privileged_daemons
from infra.stackfile.queue import TeamSpec

EXCEPTION = "trainyard.dev/pod-security-exception"
"""Annotation of a team's namespace that is not `restricted`, with the reason and its source."""
OWNER, COST_CENTRE = "trainyard.dev/team-owner", "trainyard.dev/cost-centre"
"""Annotations of a team's namespace; `names.OWNER_ANNOTATION` is the stack's mark, another thing."""

NO_MESH = {"istio-injection": "disabled", "istio.io/dataplane-mode": "none"}
"""Labels of teams' namespaces, whose pods Istio leaves alone: a job would not end before its proxy, and the
proxy's rights are refused. Linkerd reads an annotation."""


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
            **({CONTROLLER: "restricted"} if context.stack.operators.needs_controller else {}),
            **dict.fromkeys(operators, "baseline"),
            # The only pod that runs as root here creates the volumes' folders; its only capability is CHOWN.
            names.STORAGE_NAMESPACE: "baseline",
            **{name: "privileged" if why else "restricted" for name, why in exceptions.items()},
            # The log collector reads logs in a folder of the node.
            **({names.LOGS_NAMESPACE: "privileged"} if context.stack.logs.kept else {}),
        }
        super().__init__(context, "namespaces", {"levels": levels}, parent)
        retained = {*teams, names.LOGS_NAMESPACE} if has_data else set()
        self.by_name: dict[str, pulumi.Resource] = {}
        for name, level in levels.items():
            about = _metadata(name, level, team := teams.get(name), exceptions.get(name, ""))
            if team and team.namespace:
                self.by_name[name] = ObjectPatch("Namespace", about, context.access.options(self))
                continue
            kept = pulumi.ResourceOptions(retain_on_delete=True) if name in retained else None
            self.by_name[name] = self.add(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": about}, options=kept
            )
        self.register_outputs({"names": list(levels)})


def _exception(team: TeamSpec, context: PlatformContext) -> str:
    """Return why the namespace is `privileged`: a daemon of its pools' fabric; empty: it is `restricted`."""
    fabrics = sorted({pool.fabric_class for pool in context.pools_of(team)})
    return "; ".join(
        f"{daemon.name} adds {', '.join(daemon.capabilities)} ({source})"
        for daemon, source in privileged_daemons(fabrics)
    )


def _metadata(name: str, level: str, team: TeamSpec | None, exception: str) -> dict[str, Any]:
    enforced = {"pod-security.kubernetes.io/enforce": level}
    if team is None:
        return metadata(name, labels=enforced)
    about = metadata(name, labels={**NO_MESH, **team.labels, **enforced, names.TEAM_LABEL: team.name})
    known = {EXCEPTION: exception, OWNER: team.owner, COST_CENTRE: team.cost_centre}
    ours = {key: value for key, value in known.items() if value}
    return {**about, "annotations": {"linkerd.io/inject": "disabled", **team.annotations, **ours}}
