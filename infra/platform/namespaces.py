"""Namespaces: one per installed operator, one for storage, one for the rules of teams, one per team."""

from __future__ import annotations

from collections.abc import Iterable

import pulumi

from infra import names
from infra.kubernetes_objects import KubernetesObject
from infra.platform.base import Context, Layer, metadata
from infra.platform.fabric import needs_privilege


class Namespaces(Layer):
    """`by_name` maps each namespace to its resource."""

    def __init__(self, context: Context, operators: Iterable[str], parent: pulumi.Resource) -> None:
        teams = [names.team_namespace(team.name) for team in context.stack.teams]
        owners = {
            names.team_namespace(team.name): {names.TEAM_LABEL: team.name} for team in context.stack.teams
        }
        levels = {
            names.ADMISSION_NAMESPACE: "restricted",
            **dict.fromkeys(operators, "baseline"),
            # The one Job that makes the folders of volumes runs as root, with no more than CHOWN.
            names.STORAGE_NAMESPACE: "baseline",
            # Some fabrics need capabilities in the pods of jobs themselves.
            **dict.fromkeys(teams, "privileged" if needs_privilege(context.fabrics) else "restricted"),
        }
        super().__init__(context, "namespaces", {"levels": levels}, parent)
        self.by_name: dict[str, KubernetesObject] = {
            name: self.add(
                {
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": metadata(
                        name, labels={"pod-security.kubernetes.io/enforce": level, **owners.get(name, {})}
                    ),
                }
            )
            for name, level in levels.items()
        }
        self.register_outputs({"names": list(levels)})
