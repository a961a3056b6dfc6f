"""Declares operators' rendered objects in an order that lets each operator start: its workloads follow the
CRDs of all operators and the objects that the workloads use. An operator is ready once its webhooks answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from infra.common.charts import Manifest, Rendered
from infra.common.kubernetes_objects import (
    CustomResourceDefinitions,
    KubernetesObject,
    Probes,
    ServingWebhooks,
    not_awaited,
    placed,
)
from infra.platform.base import Layer, PlatformContext, metadata

_WORKLOADS = frozenset({"Deployment", "Service", "APIService"})
_ROLES = frozenset({"Role", "ClusterRole"})
_WEBHOOKS = frozenset({"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"})


@dataclass(frozen=True)
class OperatorPlan:
    """Rendered objects, values and webhook probes of an operator."""

    name: str
    namespace: str
    values: Mapping[str, Any]
    """Chart values, or changes of the manifest, as plain data that policies read."""
    rendered: Rendered
    probes: Probes | None = None
    """Probes of the operator's webhooks; None where no object of the stack needs the webhooks."""


class DefinitionsLayer(Layer):
    """The CustomResourceDefinitions of all operators, before anything that watches or uses them."""

    def __init__(
        self, context: PlatformContext, plans: Sequence[OperatorPlan], parent: pulumi.Resource
    ) -> None:
        super().__init__(context, "definitions", {"operators": [plan.name for plan in plans]}, parent)
        access = context.access
        self.resources = [
            CustomResourceDefinitions(
                f"{context.stack.name}-{plan.name}",
                kubeconfig=access.kubeconfig,
                digests=plan.rendered.definitions.digests,
                source=str(plan.rendered.definitions.source),
                # Trainyard's provider, not the Kubernetes provider: its access is the kubeconfig input.
                opts=pulumi.ResourceOptions(
                    parent=self,
                    deleted_with=access.deleted_with,
                    depends_on=[access.claim] if access.claim else [],
                ),
            )
            for plan in plans
        ]
        self.register_outputs({})


class Operator(Layer):
    """Objects of an operator, which serves once all resources in `ready` exist."""

    def __init__(
        self,
        context: PlatformContext,
        plan: OperatorPlan,
        *,
        definitions: DefinitionsLayer,
        namespace: pulumi.Resource,
        before_webhooks: Sequence[pulumi.Resource] = (),
        parent: pulumi.Resource,
    ) -> None:
        super().__init__(context, plan.name, {"namespace": plan.namespace, "values": plan.values}, parent)
        self._stack_name = context.stack.name
        objects = [placed(each, plan.namespace) for each in plan.rendered.objects]
        # A controller is ready once its certificate is in the webhooks, so these must not depend on it.
        webhooks = [each for each in objects if each["kind"] in _WEBHOOKS]
        workloads = [_declared(each) for each in objects if each["kind"] in _WORKLOADS]
        rest = [each for each in objects if each["kind"] not in _WEBHOOKS | _WORKLOADS]
        validating = self._add_all(webhooks, [namespace, *before_webhooks])
        used, offered = _split(rest)
        self._add_all(offered, [namespace])
        deps = self._add_all(used, [namespace])
        running = self._add_all(workloads, [*deps, *definitions.resources])
        self._add_all([_budget(each) for each in workloads if each["kind"] == "Deployment"], [namespace])
        # Nothing would evaluate the probes before the webhooks are declared.
        self.ready = [*running, *self._serving(plan, [*validating, *running])]
        self.register_outputs({"namespace": plan.namespace})

    def _serving(self, plan: OperatorPlan, parts: Sequence[pulumi.Resource]) -> list[pulumi.Resource]:
        if plan.probes is None:
            return []
        options = pulumi.ResourceOptions(
            parent=self, depends_on=list(parts), deleted_with=self._access.deleted_with
        )
        name, kubeconfig = f"{self._stack_name}-{plan.name}", self._access.kubeconfig
        return [ServingWebhooks(name, kubeconfig=kubeconfig, probes=plan.probes, opts=options)]

    def _add_all(
        self, manifests: Sequence[Manifest], depends_on: Sequence[pulumi.Resource]
    ) -> list[KubernetesObject]:
        return [self.add(manifest, depends_on) for manifest in manifests]


def _declared(manifest: Manifest) -> Manifest:
    return not_awaited(manifest) if manifest["kind"] == "Service" else manifest


def _budget(deployment: Manifest) -> Manifest:
    """Let drains take one replica at a time.

    An operator has one replica by default, so `minAvailable: 1` would hold every drain of its node for
    ever. A replica that is not ready is no reason to wait either.
    """
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(deployment["metadata"]["name"], deployment["metadata"]["namespace"]),
        "spec": {
            "maxUnavailable": 1,
            "selector": deployment["spec"]["selector"],
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }


def _split(manifests: Sequence[Manifest]) -> tuple[list[Manifest], list[Manifest]]:
    """Separate a controller's roles from those that nothing binds, which are offers to users."""
    bound = {each["roleRef"]["name"] for each in manifests if "roleRef" in each}
    offered = [each for each in manifests if each["kind"] in _ROLES and each["metadata"]["name"] not in bound]
    return [each for each in manifests if each not in offered], offered
