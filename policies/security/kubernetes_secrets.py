"""Policy: no value of a workload or configuration is a credential: known forms of keys and tokens, and values
of variables that are named for a password.
"""

import re
from collections.abc import Iterator
from functools import cache

from policies.policy import Policy, Resource, Violation, is_within
from policies.rules import independent
from policies.unknowns import UNKNOWN, PropertyBlock
from policies.workloads import TYPES, containers, pod_specs

FORMS = re.compile(
    r"\b(AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_\w{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{20}|\bhf_[A-Za-z0-9]{20,}"
    r"|\b(sk-|[sr]k_live_|npm_|dckr_pat_|SG\.)[\w-]{20,}|\bxox[abpr]-[\w-]{10,}|\bAIza[\w-]{35}|\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.|\bpul-[0-9a-f]{40}"
    r"|secret_access_key[\s=:\"']+[\w/+]{40}\b"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----|://[^/\s:@]+:[^/\s:@$]+@|\b(AccountKey|SharedAccessKey)=[\w+/]{20,}"
    r"|(?i:passw(or)?d)(=|:\s*)(?=\S*\d)[^\s'\"()\[\]{}.$,;*<>]{6,}(?=[\s;&'\"]|$)"
    r"|(?i:passw(or)?d)['\"]?\s*[=:]\s*(?P<quote>['\"])[^\s'\"$(){}<>*]{6,}(?P=quote)"
)
"""Forms of credentials of clouds and services, wherever they are."""
SHORT = 8
"""Length up to which no text has such a form."""
PASSWORD = re.compile(
    r"(?<!PAD_)(?<!EOS_)(?<!BOS_)(?<!UNK_)(?<!SEP_)(?<!CLS_)(?<!MASK_)"
    r"(SECRET|TOKEN|PASSWORD|PASSWD|(PRIVATE|API|SECRET|ACCESS|ACCOUNT|SIGNING|ENCRYPTION)_?KEY)$"
)
"""Names of variables with a credential; a tokenizer's special tokens are none."""
PROPERTY = re.compile(
    r"([pP]ass(word|wd|phrase)|[sS]ecret(String|Data)|[aA]uthToken|[cC]lientSecret|[aA]pi_?[kK]ey)$"
)
"""Names of properties with a credential; what the SDK marks as secret is none in plain text."""
HARMLESS = re.compile(
    r"|[\d.]+|true|false|none|[/.~@].*|[<\[].*[>\]]|[$%{][({].*|\w+://[^@]*|arn:.*"
    r"|(?-i:[a-z][a-z0-9_.-]*(/[a-z0-9_.:-]+)+)",
    re.IGNORECASE,
)
"""Values of such variables that are none: numbers, switches, paths, markers, names of secrets, addresses."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Search all values, a Secret's own at preview; the value itself is never shown."""
    for path, key, value in resource.props.leaves:
        # In an update a password may be another resource's output; what is known at preview is written down.
        if not isinstance(value, str) or any(is_within(path, secret) for secret in resource.secrets):
            continue
        in_secret = resource.type.endswith(":Secret")
        if in_secret and not resource.stack.dry_run:
            continue
        of_secret = _is_secret(key) or (in_secret and key == "value")
        is_named = resource.stack.dry_run and of_secret and not HARMLESS.fullmatch(value)
        if is_named or (len(value) > SHORT and FORMS.search(value)):
            yield Violation(path, "a credential in plain text", "a reference to a Secret")
    for pod in pod_specs(resource):
        for container in containers(pod):
            for variable in container.blocks("env"):
                yield from _variable(variable)


@cache
def _is_secret(key: str) -> bool:
    return bool(PROPERTY.search(key) or PASSWORD.search(key))


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
    types=(
        *TYPES,
        "kubernetes:core/v1:ConfigMap",
        "kubernetes:core/v1:Secret",
        "aws:*",
        "azure-native:*",
        "gcp:*",
    ),
    evaluate=evaluate,
    frameworks=("CIS Kubernetes 5.4.1", "NIST SP 800-190 4.1.4", "NIST SP 800-53 IA-5(7)"),
)
