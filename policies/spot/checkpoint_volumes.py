"""Policy: volumes for checkpoints can be mounted by many nodes and are not tied to one node or zone."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from policies.policy import Policy, Resource, Violation, texts

SHARED = ("ReadWriteMany", "ReadOnlyMany")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Volumes of checkpoints are for many nodes, and are not tied to some."""
    spec = resource.props.block("spec")
    claim = spec.block("claimRef") if resource.type.endswith("Volume") else resource.props.block("metadata")
    name = claim.get("name", resource.name)
    if not any(fnmatchcase(name.lower(), pattern) for pattern in resource.parameters["names"]):
        return
    modes = spec.texts("accessModes")
    if not set(modes).intersection(SHARED):
        yield Violation("spec.accessModes", ", ".join(modes) or "nothing", "ReadWriteMany")
    for tied in ("nodeAffinity", "local"):
        if spec.has(tied):
            yield Violation(f"spec.{tied}", "a volume of certain nodes", "one that every pool can mount")


POLICY = Policy(
    name="spot-checkpoint-volumes",
    title="Checkpoints are readable from every fallback",
    reason="A disk of one node or zone is not available when the job moves to other capacity.",
    remedy="Use a shared filesystem, or write checkpoints to an object store.",
    types=("kubernetes:core/v1:PersistentVolume", "kubernetes:core/v1:PersistentVolumeClaim"),
    evaluate=evaluate,
    frameworks=("NIST SP 800-53 CP-9", "NIST SP 800-53 CP-10"),
    parameters={
        "names": texts("Patterns of the names of claims that hold checkpoints.", "*checkpoint*", "*ckpt*")
    },
)
