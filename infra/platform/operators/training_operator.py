"""Plans the installation of training-operator 1.9 for the kubeflow.org/v1 jobs that a stack enables."""

from dataclasses import replace
from typing import Any

import yaml

from infra.common.charts import DefinitionFiles, Manifest, Rendered
from infra.common.images import edit_deployments
from infra.platform.base import RESTRICTED_CONTAINER, PlatformContext, metadata
from infra.platform.operators.operator import OperatorPlan
from infra.platform.programs import program

NAMESPACE = "kubeflow"
_INIT = "pytorch-init-container"
_VOLUME = {"name": _INIT, "configMap": {"name": _INIT}}
_MOUNT = {"name": _INIT, "mountPath": "/etc/config", "readOnly": True}


def plan(context: PlatformContext) -> OperatorPlan:
    """Read the manifest; enable the stack's kinds only: mpijobs.kubeflow.org is the MPI operator's."""
    operator = context.stack.operators.training_operator
    kinds = operator.kinds if operator else ()
    values = {
        "image": context.artifacts.images["training-operator"],
        "nodeSelector": context.system_selector,
        "kinds": list(kinds),
    }

    def edit(pod: dict[str, Any]) -> dict[str, Any]:
        containers = [
            {
                **container,
                "image": values["image"],
                "imagePullPolicy": context.settings.image_pull_policy,
                "args": [
                    *(f"--enable-scheme={kind.lower()}" for kind in kinds),
                    f"--pytorch-init-container-image={context.settings.training_image}",
                ],
                "volumeMounts": [*container.get("volumeMounts", ()), _MOUNT],
            }
            for container in pod["containers"]
        ]
        volumes = [*pod.get("volumes", ()), _VOLUME]
        return {**pod, "containers": containers, "volumes": volumes, "nodeSelector": values["nodeSelector"]}

    rendered = context.renderer.manifest("training-operator")
    served = context.stack.operators.legacy_resources
    objects_without_namespace = (each for each in rendered.objects if each["kind"] != "Namespace")
    objects = tuple(_without_data(_webhooks_of(served, each)) for each in objects_without_namespace)
    objects = (*objects, _init_container(context))
    digests = rendered.definitions.digests
    retained = {name: digest for name, digest in digests.items() if name.startswith(served)}
    definitions: DefinitionFiles = replace(rendered.definitions, digests=retained)
    return OperatorPlan(
        "legacy-v1", NAMESPACE, values, Rendered(edit_deployments(objects, edit), definitions)
    )


def _webhooks_of(resources: tuple[str, ...], manifest: Manifest) -> Manifest:
    """Keep the webhooks of kinds that are served, and remove the others."""
    if manifest["kind"] != "ValidatingWebhookConfiguration":
        return manifest
    retained = [hook for hook in manifest["webhooks"] if set(hook["rules"][0]["resources"]) <= set(resources)]
    return {**manifest, "webhooks": retained}


def _without_data(manifest: Manifest) -> Manifest:
    """Ignore the certificate's data, which the operator fills in: declared empty, they would be drift."""
    if manifest["kind"] != "Secret":
        return manifest
    return {key: value for key, value in manifest.items() if key != "data"}


def _init_container(context: PlatformContext) -> Manifest:
    """Init container in which workers of a PyTorchJob wait for the master's name.

    The operator's own container violates Pod Security's level `restricted`, and needs a registry.
    """
    container = {
        "name": "init-pytorch",
        "image": "{{.InitContainerImage}}",
        "imagePullPolicy": context.settings.image_pull_policy,
        "command": ["sh", "-c", program("wait_for_master.sh").rstrip()],
        "resources": {
            "requests": {"cpu": "50m", "memory": "16Mi"},
            "limits": {"cpu": "100m", "memory": "64Mi"},
        },
        "securityContext": RESTRICTED_CONTAINER,
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(_INIT, NAMESPACE),
        "data": {"initContainer.yaml": yaml.safe_dump([container])},
    }
