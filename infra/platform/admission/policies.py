"""Renders the ValidatingAdmissionPolicies and bindings for what teams may create, change and delete: pods,
each kind of job, shells, Secrets, Services and Workloads.

Each policy has one binding for all teams: it selects the namespaces with the label `trainyard.dev/team`, and
reads the team's parameters from one ConfigMap that no team can write. Where the ConfigMap or the team's entry
is missing, every request is refused.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from infra.common import names
from infra.common.charts import Manifest
from infra.platform.admission.jobs import CONTAINERS_OF_OBJECT, JobKind, for_every_pod
from infra.platform.admission.parameters import LISTS, PARAMETERS
from infra.platform.admission.rules import AdmissionRule, rules_of
from infra.platform.base import metadata

_API = "admissionregistration.k8s.io/v1"
_ACCOUNT = "system:serviceaccount"
POD_MAKERS = ("kubeflow", "mpi-operator")
"""Namespaces of the controllers that create pods of admitted jobs directly; the others create Jobs."""
CLUSTER = ("system:kube-controller-manager", "system:kube-scheduler")
KUBE_SYSTEM = (
    "generic-garbage-collector",
    "job-controller",
    "namespace-controller",
    "node-controller",
    "pod-garbage-collector",
    "replicaset-controller",  # of the pod that receives a team's code; members create no Deployments
    "ttl-after-finished-controller",
)
"""Service accounts of Kubernetes' own controllers that change or delete objects of other users."""


@dataclass(frozen=True)
class StackRules:
    """What the policies of a stack have besides the parameters of its teams."""

    lists: Mapping[str, Sequence[str]]
    """Lists that are the same for all teams (`parameters.lists_of_stack`)."""
    controllers: Sequence[str] = ()
    """Further service accounts that create pods of queued jobs, `namespace/name`."""
    queued: bool = True
    """Whether a queue assigns nodes to jobs."""


def manifests(kinds: Sequence[JobKind], stack: StackRules) -> Iterator[Manifest]:
    """Yield each policy and its binding."""
    # Two policies: with a condition on the user, the API server would convert the request for every new pod.
    yield from _bound("pods", [_CREATED_PODS], _pod_rules(stack, created=True), stack, None)
    yield from _bound("changed-pods", [_CHANGED_PODS], _pod_rules(stack, created=False), stack, _USERS)
    for kind in kinds:
        resources = [_resource(kind.group, kind.versions, [kind.resource])]
        yield from _bound(kind.resource, resources, _job_rules(kind), stack, _USERS)
    for name, orphans in (("deleted", False), ("deleted-jobs", True)):
        chosen = [kind for kind in kinds if kind.orphans_by_default == orphans]
        resources = [_resource(kind.group, kind.versions, [kind.resource], "DELETE") for kind in chosen]
        if resources:
            yield from _bound(name, resources, _as_they_are(rules_of(name)), stack, _USERS)
    for name, resource in _OTHERS.items():
        yield from _bound(name, [resource], _as_they_are(rules_of(name)), stack, _USERS)


_PUT_IN = " Not written by you? A webhook put it in: tell the platform."
"""End of a message about a pod: its job was evaluated by the same rule before webhooks changed the pod."""
Rules = list[tuple[str, AdmissionRule]]
"""Conditions on the object, each with its rule."""


def _as_they_are(rules: Sequence[AdmissionRule]) -> Rules:
    return [(rule.holds, rule) for rule in rules]


def _pod_rules(stack: StackRules, *, created: bool) -> Rules:
    """Pods are the authority: they are what runs, whatever template or patch they come from."""
    rules = (*rules_of("pods"), *(rules_of("queued-pods") if stack.queued else ()))
    chosen = [rule for rule in rules if created or rule.of != "created-pod"]
    explained = [
        replace(each, message=each.message + _PUT_IN) if each.of in ("any", "whole") else each
        for each in chosen
    ]
    return [(_of_the_object(rule.holds), rule) for rule in explained]


def _of_the_object(expression: str) -> str:
    """Name the pod and its containers by variables, which the API server works out once for all rules."""
    return re.sub(
        r"(?<![.\w])containers\.", "variables.containers.", re.sub(r"\bpod\.", "object.", expression)
    )


def _job_rules(kind: JobKind) -> Rules:
    """Refuse at submission what pods would be refused for: a refused pod is only an event elsewhere."""
    early = [*(rule for rule in rules_of("pods") if rule.of in ("any", "whole")), *rules_of("pods-of-jobs")]
    num_nodes = f"int({kind.num_nodes})"
    return [
        *_as_they_are((*rules_of("jobs"), *kind.own_rules)),
        *((rule.holds.format(num_nodes=num_nodes), rule) for rule in rules_of("size")),
        *((for_every_pod(kind, rule), rule) for rule in early),
        *((f"{num_nodes} <= 1 || ({for_every_pod(kind, rule)})", rule) for rule in rules_of("fabric")),
    ]


def _resource(
    group: str, versions: Sequence[str], resources: Sequence[str], *operations: str
) -> dict[str, Any]:
    return {
        "apiGroups": [group],
        "apiVersions": list(versions),
        "operations": list(operations or ("CREATE", "UPDATE")),
        "resources": list(resources),
    }


_CREATED_PODS = _resource("", ["v1"], ["pods"], "CREATE")
_CHANGED_PODS = _resource("", ["v1"], ["pods", "pods/ephemeralcontainers"], "UPDATE")
_USERS = "!({controller})"
"""CEL condition that no controller of the cluster makes the request: parts of a job were evaluated with
the job."""

_OTHERS = {
    "shells": _resource("", ["v1"], ["pods/exec", "pods/attach"], "CONNECT"),
    "secrets": _resource("", ["v1"], ["secrets"]),
    "services": _resource("", ["v1"], ["services"]),
    "workloads": _resource("kueue.x-k8s.io", ["*"], ["workloads"]),
}
"""Policies of objects besides pods and jobs; each has a table of rules with its name."""


def _bound(
    name: str, resources: Sequence[Mapping[str, Any]], rules: Rules, stack: StackRules, condition: str | None
) -> tuple[Manifest, Manifest]:
    name = f"trainyard-teams-{name}"
    chosen = [each for each in rules if not each[1].only_with or each[1].only_with in stack.lists]
    return _policy(name, resources, chosen, stack, condition), _binding(name)


def _policy(
    name: str,
    resources: Sequence[Mapping[str, Any]],
    rules: Sequence[tuple[str, AdmissionRule]],
    stack: StackRules,
    condition: str | None,
) -> Manifest:
    text = " ".join(expression for expression, _ in rules)
    controllers = stack.controllers
    variables = {"team": f"namespaceObject.metadata.labels['{names.TEAM_LABEL}']", **_facts(controllers)}
    variables |= {each: _list(each) for each in LISTS if f"allowed.{each}" in text}
    matched = {} if condition is None else {"matchConditions": [_condition(condition, controllers)]}
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": metadata(name),
        "spec": {
            "failurePolicy": "Fail",
            "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
            "matchConstraints": {
                "namespaceSelector": {"matchExpressions": [{"key": names.TEAM_LABEL, "operator": "Exists"}]},
                "resourceRules": [dict(each) for each in resources],
            },
            **matched,
            "variables": [{"name": key, "expression": value} for key, value in variables.items()],
            "validations": [_validation(expression, rule, stack.lists) for expression, rule in rules],
        },
    }


def _condition(condition: str, controllers: Sequence[str]) -> dict[str, str]:
    return {"name": "asked-by", "expression": condition.format(controller=_is_controller(controllers))}


def _facts(controllers: Sequence[str]) -> dict[str, str]:
    """Variables of rules besides the lists: who makes the request, and whether the pod is scheduled."""
    return {
        # A rule matches several kinds, and not each of them has every field that the rule reads.
        "object": "dyn(object)",
        "oldObject": "dyn(oldObject)",
        "containers": CONTAINERS_OF_OBJECT,
        "is_controller": _is_controller(controllers),
        "makes_queued_pods": _asked_by(POD_MAKERS, ["job-controller"], controllers),
        "is_placed": (
            "request.operation == 'UPDATE' && request.resource.resource == 'pods'"
            " && variables.oldObject.spec.?nodeSelector == variables.object.spec.?nodeSelector"
            " && variables.oldObject.spec.?tolerations == variables.object.spec.?tolerations"
        ),
    }


def _is_controller(controllers: Sequence[str]) -> str:
    asked = _asked_by(names.OPERATOR_NAMESPACES, KUBE_SYSTEM, controllers)
    return (
        f"{asked} || request.userInfo.username in {list(CLUSTER)!r}"
        # A fleet's manager sends evaluated jobs. Only the platform may create namespaces with this
        # prefix.
        f" || request.userInfo.?groups.orValue([]).exists(each, each.startsWith('{_ACCOUNT}s:fleet-'))"
    )


def _asked_by(namespaces: Sequence[str], kube_system: Sequence[str], others: Sequence[str]) -> str:
    groups = [f"{_ACCOUNT}s:{namespace}" for namespace in namespaces]
    users = [f"{_ACCOUNT}:kube-system:{name}" for name in kube_system]
    users += [f"{_ACCOUNT}:{other.replace('/', ':')}" for other in others]
    return (
        f"request.userInfo.username in {users!r}"
        f" || request.userInfo.?groups.orValue([]).exists(each, each in {groups!r})"
    )


def _list(name: str) -> str:
    text = f"params.data[variables.team + '.{name}']"
    return f"{text} == '' ? [] : {text}.split(', ')"


_NAMED = re.compile(r"\b(?:allowed\.(\w+)|(object|oldObject)\b)")
_SHOWN = re.compile(r"\{(\w+)\}")
_OF_TEAM = "…"
"""Text in place of a team's list, where the API server cannot evaluate the message's expression."""


def _validation(expression: str, rule: AdmissionRule, lists: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return a validation with the default reason, Invalid (422); `lists` are those of the stack.

    The Kubernetes provider takes Forbidden for missing rights and shows no such refusal in a preview
    (pulumi-kubernetes, provider.go, Create).
    """

    def value_of(named: re.Match[str]) -> str:
        name = named[1] or named[2]
        return json.dumps(lists[name]) if name in lists else f"variables.{name}"

    def part_of(index: int, part: str) -> tuple[str, str]:
        """Return a part of the message as text, and in CEL."""
        if index % 2 and part not in lists:
            text = f"params.data[variables.team + '.{part}']"
            return _OF_TEAM, f"({text} == '' ? 'none' : {text})"
        text = ", ".join(lists[part]) if index % 2 else part
        return text, json.dumps(text)

    parts = [part_of(index, part) for index, part in enumerate(_SHOWN.split(rule.message))]
    texts, expressions = zip(*parts, strict=True)
    found = {"expression": _NAMED.sub(value_of, expression), "message": "".join(texts)}
    return {**found, "messageExpression": " + ".join(expressions)} if _OF_TEAM in texts else found


def _binding(policy: str) -> Manifest:
    return {
        "apiVersion": _API,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata(policy),
        "spec": {
            "policyName": policy,
            "validationActions": ["Deny"],
            "paramRef": {
                "name": PARAMETERS,
                "namespace": names.ADMISSION_NAMESPACE,
                "parameterNotFoundAction": "Deny",
            },
        },
    }
