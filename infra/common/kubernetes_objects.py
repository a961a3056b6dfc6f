"""Pulumi resources for Kubernetes (objects from manifests, Helm releases, CRDs, waits for webhooks, node
labels, kubeconfigs), and the provider that they share.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import pulumi
from pulumi_kubernetes import Provider

from infra.common.names import OWNER_ANNOTATION

MANAGED_BY = "app.kubernetes.io/managed-by"
_CLUSTER_SCOPED = frozenset(
    {
        "APIService",
        "ClusterQueue",
        "ClusterRole",
        "ClusterRoleBinding",
        "ClusterTrainingRuntime",
        "MutatingWebhookConfiguration",
        "Namespace",
        "PersistentVolume",
        "PriorityClass",
        "ResourceFlavor",
        "StorageClass",
        "Topology",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
        "WorkloadPriorityClass",
    }
)


def type_token(api_version: str, kind: str) -> str:
    """Return the type that the Kubernetes provider gives this kind: `kubernetes:apps/v1:Deployment`."""
    group = api_version if "/" in api_version else f"core/{api_version}"
    return f"kubernetes:{group}:{kind}"


def logical_name(manifest: Mapping[str, Any]) -> str:
    """Name a resource after its object: `kueue-system/kueue-controller-manager`."""
    metadata = manifest["metadata"]
    return "/".join(part for part in (metadata.get("namespace"), metadata["name"]) if part)


def placed(manifest: Mapping[str, Any], namespace: str) -> dict[str, Any]:
    """Give a manifest the namespace that an install into `namespace` would give it, and no other."""
    metadata = dict(manifest["metadata"])
    if manifest["kind"] in _CLUSTER_SCOPED:
        metadata.pop("namespace", None)
    else:
        metadata.setdefault("namespace", namespace)
    return {**manifest, "metadata": metadata}


def not_awaited(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Let the provider continue once the object exists.

    It considers a Service ready 10 s after its endpoints last changed (`pkg/await/service.go`). To know that
    a Service serves, wait for its pods or for `ServingWebhooks`.
    """
    return _annotated(manifest, {"pulumi.com/skipAwait": "true"})


_CLUSTER: ContextVar[str] = ContextVar("cluster", default="")


@contextmanager
def named_after(cluster: str) -> Iterator[None]:
    """Prefix the logical names of all objects declared in this context with the cluster's name.

    A program may declare several clusters, and a URN has the types of the parents, not their names.
    Each object has its plain name as an alias, so that a program with one cluster can adopt the component.
    """
    token = _CLUSTER.set(cluster)
    try:
        yield
    finally:
        _CLUSTER.reset(token)


def _named(name: str, opts: pulumi.ResourceOptions) -> tuple[str, pulumi.ResourceOptions]:
    cluster = _CLUSTER.get()
    if not cluster:
        return name, opts
    alias = pulumi.ResourceOptions(aliases=[pulumi.Alias(name=name)])
    return f"{cluster}/{name}", pulumi.ResourceOptions.merge(opts, alias)


def owner() -> str:
    """Return the value of OWNER_ANNOTATION in this program: PROJECT/STACK, and a component's cluster."""
    parts = (pulumi.get_project(), pulumi.get_stack(), _CLUSTER.get())
    return "/".join(filter(None, parts))


FORCE = {"pulumi.com/patchForce": "true"}
"""Annotation by which the provider takes fields over that another field manager owns."""


def _annotated(manifest: Mapping[str, Any], more: Mapping[str, str]) -> dict[str, Any]:
    metadata = manifest["metadata"]
    annotations = {**(metadata.get("annotations") or {}), **more}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


@dataclass(frozen=True)
class Probe:
    """An object whose dry-run creation shows that a webhook evaluates objects."""

    manifest: Mapping[str, Any]
    evidence: str
    """Text in the API server's answer that proves an evaluation: a change by a mutating webhook, or the
    name of a validating webhook that rejects the object."""


@dataclass(frozen=True)
class Probes:
    """Probes of an operator's webhooks, one per webhook configuration.

    The certificate controller gives all webhooks of a configuration their CA bundle at once, but each
    configuration by itself.
    """

    collection: str
    """API path of the collection in which the objects would be created."""
    probes: Sequence[Probe]


class KubernetesObject(pulumi.CustomResource):
    """One object in the cluster, of any kind, created and awaited by the Kubernetes provider.

    The provider knows a kind by its type token, so a class per kind, and its slow import, is not needed.
    """

    data: pulumi.Output[dict[str, str]]
    """Data of a Secret or ConfigMap."""

    def __init__(
        self, manifest: Mapping[str, Any], opts: pulumi.ResourceOptions, *, cluster: str = ""
    ) -> None:
        """Declare it; `cluster` distinguishes objects of the same name where a stack has several clusters."""
        if manifest["kind"] == "Secret":
            # A controller fills a Secret that is declared empty; a refreshed state would replace it for that.
            is_filled = not manifest.keys() & {"data", "stringData"}
            filled = ["data"] if is_filled else []
            if is_filled:  # and its fields are the controller's, with which a second apply conflicts
                manifest = _annotated(manifest, FORCE)
            secret = pulumi.ResourceOptions(
                additional_secret_outputs=["data", "stringData"], ignore_changes=filled
            )
            opts = pulumi.ResourceOptions.merge(opts, secret)
        if manifest["kind"] == "ResourceQuota":  # else awaited for a minute, which its controller can exceed
            manifest = not_awaited(manifest)
        token = type_token(manifest["apiVersion"], manifest["kind"])
        name = logical_name(manifest)
        name, opts = _named(f"{cluster}/{name}" if cluster else name, opts)
        super().__init__(token, name, _annotated(manifest, {OWNER_ANNOTATION: owner()}), opts)


class ExistingObject(pulumi.CustomResource):
    """An object that exists already: read, at previews too, and never changed."""

    spec: pulumi.Output[dict[str, Any]]

    def __init__(
        self, logical: str, api_version: str, kind: str, name: str, opts: pulumi.ResourceOptions
    ) -> None:
        opts = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(id=name))
        logical, opts = _named(logical, opts)
        super().__init__(type_token(api_version, kind), logical, {"spec": None}, opts)


class ObjectPatch(pulumi.CustomResource):
    """Labels and annotations of an existing object; deleting the resource removes them, the object remains.

    With FORCE among the annotations the stack takes over those that were set by hand.
    """

    def __init__(self, kind: str, metadata: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        inputs = {"apiVersion": "v1", "kind": kind, "metadata": dict(metadata)}
        name, opts = _named(logical_name(inputs), opts)
        super().__init__(f"{type_token('v1', kind)}Patch", name, inputs, opts)


class HelmRelease(pulumi.CustomResource):
    """A chart that helm fetches and installs when the stack is deployed."""

    def __init__(self, name: str, inputs: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        name, opts = _named(name, opts)
        super().__init__("kubernetes:helm.sh/v3:Release", name, dict(inputs), opts)


class CustomResourceDefinitions(pulumi.CustomResource):
    """The definitions of an operator, served once the resource exists; the state has digests only."""

    def __init__(
        self,
        name: str,
        *,
        kubeconfig: pulumi.Input[str],
        digests: Mapping[str, str],
        source: str,
        opts: pulumi.ResourceOptions,
    ) -> None:
        asked = {"kubeconfig": kubeconfig, "definitions": dict(digests), "source": source}
        inputs = {**asked, "owner": owner()}
        super().__init__("trainyard:kubernetes:CustomResourceDefinitions", name, inputs, opts)


class ClusterClaim(pulumi.CustomResource):
    """The mark of the stack that has the cluster; a second stack is refused before its first object."""

    def __init__(self, name: str, kubeconfig: pulumi.Input[str], opts: pulumi.ResourceOptions) -> None:
        inputs = {"kubeconfig": kubeconfig, "owner": owner()}
        super().__init__("trainyard:kubernetes:ClusterClaim", name, inputs, opts)


class ServingWebhooks(pulumi.CustomResource):
    """Created once an operator's webhooks evaluate objects."""

    def __init__(
        self, name: str, *, kubeconfig: pulumi.Input[str], probes: Probes, opts: pulumi.ResourceOptions
    ) -> None:
        inputs = {
            "kubeconfig": kubeconfig,
            "collection": probes.collection,
            "probes": [
                {"manifest": dict(each.manifest), "evidence": each.evidence} for each in probes.probes
            ],
        }
        super().__init__("trainyard:kubernetes:ServingWebhooks", name, inputs, opts)


def known_once_served(manifest: Mapping[str, Any], webhooks: Sequence[ServingWebhooks]) -> dict[str, Any]:
    """Make the label of our object unknown until the webhooks that validate it serve.

    A preview tries an object by a dry run, unless a value is unknown. An `up` that was killed may leave
    webhooks of which the operator does not run yet: a dry run would fail, and so would every later preview.
    """
    if not webhooks:
        return dict(manifest)
    metadata = manifest["metadata"]
    owner = metadata["labels"][MANAGED_BY]
    known = pulumi.Output.all(*(each.id for each in webhooks)).apply(lambda _: owner)
    return {**manifest, "metadata": {**metadata, "labels": {**metadata["labels"], MANAGED_BY: known}}}


class RotatedKubeconfig(pulumi.CustomResource):
    """Kubeconfig for another cluster, the issuer, in a Secret of the holder; updates renew its token."""

    expires: pulumi.Output[str]

    def __init__(self, name: str, inputs: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        asked = {**inputs, "expires": None, "renews": None}
        super().__init__("trainyard:kubernetes:RotatedKubeconfig", name, asked, opts)


@dataclass(frozen=True)
class Access:
    """Connection of resources to the cluster: kubeconfig and provider."""

    kubeconfig: pulumi.Output[str]
    provider: pulumi.ProviderResource
    deleted_with: pulumi.Resource | None
    """Resource whose deletion also deletes all objects, so that no object is deleted separately."""
    claim: pulumi.Resource | None = None
    """The stack's claim to the cluster, which precedes all objects; None for a cluster of another stack."""

    def options(
        self, parent: pulumi.Resource, depends_on: Sequence[pulumi.Resource] = ()
    ) -> pulumi.ResourceOptions:
        """Options of an object in the cluster."""
        return pulumi.ResourceOptions(
            parent=parent, provider=self.provider, deleted_with=self.deleted_with, depends_on=list(depends_on)
        )


def connect(
    name: str,
    kubeconfig: pulumi.Output[str],
    owner: pulumi.Resource | None,
    parent: pulumi.Resource,
    depends_on: Sequence[pulumi.Resource] = (),
) -> Access:
    """Return the connection to a cluster: deleting `owner` deletes its objects; `depends_on` come first."""
    provider = Provider(
        name,
        kubeconfig=kubeconfig,
        # Without it a renewed certificate would replace the provider, and with it every object.
        cluster_identifier=name,
        enable_server_side_apply=True,
        opts=pulumi.ResourceOptions(parent=parent, deleted_with=owner, depends_on=list(depends_on)),
    )
    return Access(kubeconfig, provider, owner)


def claim_and_connect(
    name: str,
    kubeconfig: pulumi.Output[str],
    owner: pulumi.Resource | None,
    parent: pulumi.Resource,
    depends_on: Sequence[pulumi.Resource] = (),
    *,
    protect: bool = False,
) -> Access:
    """Claim the stack's cluster, and connect to it; a protected claim keeps `down` from deleting anything."""
    options = pulumi.ResourceOptions(
        parent=parent, deleted_with=owner, depends_on=list(depends_on), protect=protect
    )
    claim = ClusterClaim(name, kubeconfig, options)
    return replace(connect(name, kubeconfig, owner, parent, [*depends_on, claim]), claim=claim)
