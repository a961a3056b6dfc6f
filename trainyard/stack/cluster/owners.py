"""Tells from an object's metadata whose it is: a stack's, Helm's, Argo CD's, Flux's, OLM's, or a user's."""

from infra.clients.kubernetes import Object
from infra.common.names import OWNER_ANNOTATION


def owner_of(found: Object) -> str:
    """Name the owner in words that fit after "of": `Helm release kueue in kueue-system`.

    Marks: Helm 3 (`meta.helm.sh`), Argo CD's tracking ID, Flux's labels of kustomizations and releases, OLM's
    `olm.owner`; else the first field manager.
    """
    metadata = found["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if stack := annotations.get(OWNER_ANNOTATION):
        return f"stack {stack}"
    if tracking := annotations.get("argocd.argoproj.io/tracking-id"):
        return f"Argo CD application {tracking.partition(':')[0]}"
    for kind in ("helm", "kustomize"):
        if name := labels.get(f"{kind}.toolkit.fluxcd.io/name"):
            within = labels.get(f"{kind}.toolkit.fluxcd.io/namespace", "")
            return f"Flux {'HelmRelease' if kind == 'helm' else 'Kustomization'} {within}/{name}"
    if operator := labels.get("olm.owner") or (labels.get("olm.managed") and "its operator"):
        return f"OLM ({operator})"
    if release := annotations.get("meta.helm.sh/release-name"):
        return f"Helm release {release} in {annotations.get('meta.helm.sh/release-namespace', '?')}"
    managers = [each.get("manager", "") for each in metadata.get("managedFields") or ()]
    since = metadata.get("creationTimestamp", "")[:10]
    made = f", made by {managers[0]}" if managers else ""
    return f"others{made}{f' on {since}' if since else ''}"


def is_of(found: Object, stack: str) -> bool:
    """Whether an object has the mark of this stack (PROJECT/STACK)."""
    return (found["metadata"].get("annotations") or {}).get(OWNER_ANNOTATION) == stack
