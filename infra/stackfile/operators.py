"""The stack file's `operators` section: which job controllers are installed, existing or off, and Kueue's
timeouts.
"""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from infra.stackfile.base import Quantity, Spec, wrong

OperatorMode = Literal["install", "existing", "off"]
"""Mode of an operator: `install`; `existing` where others have installed the operator; or `off`."""

LegacyKind = Literal["PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob"]

Minutes = Annotated[int, Quantity("m", 1, 1440)]

_REFUSED_KINDS = {
    "MXJob": "training-operator dropped it in 1.9, when Apache MXNet retired: move the job to PyTorchJob",
    "MPIJob": "two controllers would own mpijobs.kubeflow.org: leave it out, the MPI operator serves MPIJob",
}


def _legacy_kind(value: object) -> object:
    """Refuse kinds that are not supported, each with its reason."""
    if isinstance(value, str) and value in _REFUSED_KINDS:
        raise wrong(
            "legacy_kind", "PyTorchJob, TFJob, XGBoostJob, PaddleJob or JAXJob", _REFUSED_KINDS[value]
        )
    return value


class TrainingOperatorSpec(Spec):
    """training-operator 1.9, for jobs of kubeflow.org/v1."""

    kinds: tuple[Annotated[LegacyKind, BeforeValidator(_legacy_kind)], ...] = Field(
        default=("PyTorchJob", "XGBoostJob"),
        min_length=1,
        description="kinds of kubeflow.org/v1 that training-operator reconciles",
    )


class OperatorsSpec(Spec):
    """The job controllers. `existing` means that you have installed the operator yourself."""

    jobset: OperatorMode = Field(default="install", description="JobSet")
    trainer: OperatorMode = Field(default="install", description="Kubeflow Trainer v2 (TrainJob)")
    mpi: OperatorMode = Field(default="install", description="MPI operator (MPIJob v2beta1)")
    kueue: OperatorMode = Field(default="install", description="Kueue")
    pods_ready_minutes: Minutes | None = Field(
        default=None,
        alias="pods_ready",
        description="time in which all pods of an admitted job must be ready before the job is queued"
        " again (waitForPodsReady); default: 5m, or 30m if a pool is autoscaled",
    )
    pods_recovery_minutes: Minutes | None = Field(
        default=None,
        alias="pods_recovery",
        description="time in which a failed pod must be replaced and ready before the job is queued again"
        " (recoveryTimeout); default: 2m",
    )
    unstartable_seconds: Annotated[int, Quantity("s", 0, 3600)] = Field(
        default=120,
        alias="unstartable",
        description="time after which an admitted job that cannot start (no such image, Secret, claim or"
        " program) loses its place, until `trainyard resume`; 0s: never",
    )
    training_operator: TrainingOperatorSpec | None = Field(
        default=None, description="training-operator 1.9 for jobs of kubeflow.org/v1; default: not installed"
    )

    @property
    def needs_controller(self) -> bool:
        """Whether `trainyard-controller` has a task: Kueue gives out quota, which no job may hold in vain."""
        return self.kueue != "off" and self.unstartable_seconds > 0

    @property
    def legacy_resources(self) -> tuple[str, ...]:
        """API resources of the kinds that training-operator reconciles; empty without the operator."""
        operator = self.training_operator
        return tuple(f"{kind.lower()}s" for kind in operator.kinds) if operator else ()
