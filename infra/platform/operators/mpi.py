"""Plans the installation of the MPI operator (MPIJobs of kubeflow.org/v2beta1) from its manifest."""

from typing import Any

from infra.common.charts import Rendered
from infra.common.images import edit_deployments
from infra.platform.base import PlatformContext
from infra.platform.operators.operator import OperatorPlan

NAMESPACE = "mpi-operator"


def plan(context: PlatformContext) -> OperatorPlan:
    """Read the manifest; put its Deployment on the system pool, with our image's full reference."""
    values = {"image": context.artifacts.images["mpi-operator"], "nodeSelector": context.system_selector}

    def edit(pod: dict[str, Any]) -> dict[str, Any]:
        containers = [
            {**container, "image": values["image"], "imagePullPolicy": context.settings.image_pull_policy}
            for container in pod["containers"]
        ]
        return {**pod, "containers": containers, "nodeSelector": values["nodeSelector"]}

    rendered = context.renderer.manifest("mpi-operator")
    # infra/platform/namespaces.py declares all namespaces.
    objects = tuple(each for each in rendered.objects if each["kind"] != "Namespace")
    return OperatorPlan(
        "mpi", NAMESPACE, values, Rendered(edit_deployments(objects, edit), rendered.definitions)
    )
