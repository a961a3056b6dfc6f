"""Policy: containers' environment variables with names of credentials (`…_TOKEN`, `…_PASSWORD`) take their
values from Secrets, not from the pod spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.workloads import TYPES, containers, pod_specs

CREDENTIAL = re.compile(r"(SECRET|TOKEN|PASSWORD|PASSWD|PRIVATE_KEY|API_?KEY|CREDENTIAL)S?(_ACCESS_KEY)?$")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """A variable that is named like a credential takes its value from a Secret; the value is never shown."""
    for pod in pod_specs(resource):
        for container in containers(pod):
            for variable in container.blocks("env"):
                if CREDENTIAL.search(variable.get("name", "").upper()) and variable.has("value"):
                    allowed = "valueFrom.secretKeyRef"
                    yield Violation(variable.at("value"), f"a value for {variable.get('name')}", allowed)


POLICY = Policy(
    name="kubernetes-plain-credentials",
    title="Credentials come from Secrets, not from pod specs",
    reason="Everyone who may list pods reads a pod spec, and it remains in every job's history.",
    remedy="Put the value into a Secret and refer to it; better, use the pod's identity.",
    types=TYPES,
    evaluate=evaluate,
    frameworks=("CIS Kubernetes 5.4.1", "NIST SP 800-190 4.1.4", "NIST SP 800-53 IA-5(7)"),
)
