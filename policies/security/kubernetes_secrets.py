"""Policy: no value of a workload or configuration is a credential: known forms of keys and tokens, and values
of variables that are named for a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import independent
from policies.unknowns import UNKNOWN, PropertyBlock
from policies.workloads import TYPES, containers, pod_specs

FORMS = re.compile(
    r"\b(AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{20}|\bhf_[A-Za-z0-9]{20,}"
    r"|\bsk-[\w-]{20,}|\bxox[abpr]-[\w-]{10,}|\bAIza[\w-]{35}|\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.|\bpul-[0-9a-f]{40}"
    r"|secret_access_key[\s=:\"']+[\w/+]{40}\b"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----|://[^/\s:@]+:[^/\s:@$]+@|\b(AccountKey|SharedAccessKey)=[\w+/]{20,}"
)
"""Forms of credentials of clouds and services, wherever they are."""
PASSWORD = re.compile(
    r"(?<!PAD_)(?<!EOS_)(?<!BOS_)(?<!UNK_)(?<!SEP_)(?<!CLS_)(?<!MASK_)"
    r"(SECRET|TOKEN|PASSWORD|PASSWD|PRIVATE_KEY|API_?KEY|SECRET_ACCESS_KEY)$"
)
"""Names of variables with a credential; a tokenizer's special tokens are none."""
HARMLESS = re.compile(r"|[\d.]+|true|false|none|[/.~].*|[<\[].*[>\]]|\$[({].*|\w+://[^@]*", re.IGNORECASE)
"""Values of such variables that are none: numbers, switches, paths, markers, references, addresses."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Search all values but a Secret's own; the value itself is never shown."""
    for path, _, value in resource.props.leaves:
        if isinstance(value, str) and path not in resource.secrets and FORMS.search(value):
            yield Violation(path, "a credential in plain text", "a reference to a Secret")
    for pod in pod_specs(resource):
        for container in containers(pod):
            for variable in container.blocks("env"):
                yield from _variable(variable)


@independent
def _variable(variable: PropertyBlock) -> Iterator[Violation]:
    name, value = variable.get("name", ""), variable.data.get("value")
    is_named = PASSWORD.search(name.upper())
    if is_named:
        value = variable.get("value")
    if value is not None and value is not UNKNOWN:
        is_secret = is_named and not HARMLESS.fullmatch(str(value))
        if is_secret or FORMS.search(str(value)):
            yield Violation(variable.at("value"), f"a value for {name}", "valueFrom.secretKeyRef")


POLICY = Policy(
    name="kubernetes-plain-credentials",
    title="Credentials come from Secrets, not from plain values",
    reason="Everyone who may list pods reads a pod spec, and it remains in every job's history.",
    remedy="Put the value into a Secret and refer to it; better, use the pod's identity.",
    types=(*TYPES, "kubernetes:core/v1:ConfigMap", "aws:*", "azure-native:*", "gcp:*"),
    evaluate=evaluate,
    frameworks=("CIS Kubernetes 5.4.1", "NIST SP 800-190 4.1.4", "NIST SP 800-53 IA-5(7)"),
)
