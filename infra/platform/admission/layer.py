"""Declares the ConfigMap that the admission policies read, then each policy, then its binding."""

import pulumi

from infra.common import names
from infra.platform.admission.jobs import JOB_KINDS, JobKind
from infra.platform.admission.parameters import config_map, lists_of_stack
from infra.platform.admission.policies import StackRules, manifests
from infra.platform.base import Layer, PlatformContext
from infra.platform.namespaces import Namespaces
from infra.stackfile.operators import OperatorsSpec
from infra.targets.base import ClusterOutputs


class Admission(Layer):
    """Policies of the API server for the namespaces of teams."""

    def __init__(
        self,
        context: PlatformContext,
        namespaces: Namespaces,
        outputs: ClusterOutputs,
        parent: pulumi.Resource,
    ) -> None:
        spec = context.stack.admission
        super().__init__(context, "admission", {"spec": spec.model_dump(mode="json")}, parent)
        parameters = config_map(context, shared=outputs.volume_source is not None)
        made = self.add(parameters, [namespaces.by_name[names.ADMISSION_NAMESPACE]])
        operators = context.stack.operators
        rules = StackRules(lists_of_stack(context), spec.controllers, queued=operators.kueue != "off")
        policies = list(manifests(_kinds(operators), rules))
        for policy, binding in zip(policies[::2], policies[1::2], strict=True):
            self.add(binding, [self.add(policy, [made])])
        self.register_outputs({})


def _kinds(operators: OperatorsSpec) -> list[JobKind]:
    """Name the kinds of jobs that the cluster has, or may be given by others: RayJobs."""
    needs = {
        "jobsets": operators.jobset != "off",
        "trainjobs": operators.trainer != "off",
        "mpijobs": operators.mpi != "off",
    }
    return [
        kind
        for kind in JOB_KINDS
        if needs.get(
            kind.resource, kind.group != "kubeflow.org" or kind.resource in operators.legacy_resources
        )
    ]
