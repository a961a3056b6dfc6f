"""Tries one pod per runtime and team by a server-side dry run, as the Job controller would make it: what the
policies and webhooks of others refuse or put in is known before a job waits. Nothing is created.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from infra.clients.kubernetes import ApiError, ApiServer, Object
from infra.common.names import POOL_LABEL, TEAM_LABEL
from infra.errors import Problem
from infra.platform.admission.rules import JOB_CONTROLLER, VOLUME_KINDS
from infra.stackfile import Stack
from trainyard.stack.cluster.seen import WORKERS

FALLBACK = "default"
"""Namespace for pods of teams that have none yet: every cluster has it."""
JOB, _UID = "trainyard-dry-run", "00000000-0000-0000-0000-000000000000"
_TEAM, _NO_TEAM = (
    f"namespaceSelector: {{matchExpressions: [{{key: {TEAM_LABEL}, operator: {operator}}}]}}"
    for operator in ("Exists", "DoesNotExist")
)
_REFUSED_BY: Sequence[tuple[str, str, str]] = (
    (r'webhook "(\S*kyverno\S*)"', "Kyverno ({})",
     f"write `exclude: {{any: [{{resources: {{{_TEAM}}}}}]}}` into the policy's rule"),
    (r'webhook "(\S*gatekeeper\S*)"', "Gatekeeper ({})",
     f"write `{_NO_TEAM}` into `spec.match` of the constraint"),
    (r'webhook "([^"]+)"', "webhook {}", f"write `{_NO_TEAM}` into its configuration"),
    (r"ValidatingAdmissionPolicy '([^']+)'", "policy {}", f"write `{_NO_TEAM}` into `spec.matchConstraints`"),
    (r'violates (PodSecurity "[^"]+")', "{}", "set pod-security.kubernetes.io/enforce as the stack has it"),
    (r"(security context constraint)", "a {}", "use another cluster: OpenShift is not supported"),
    (r"failed (quota: [^:]+):", "{}", "remove that ResourceQuota: the stack has `teams[].limits`"),
    (r"usage per (\w+) is", "a LimitRange per {}", "remove it: the stack has `teams[].limits`"),
    ("", "the API server", "correct what it names"),
)  # fmt: skip
"""What a refusal says → who refuses, and the line to write (Kubernetes 1.35: admission/plugin/webhook/errors,
policy/validating/dispatcher.go, limitranger, podsecurity)."""
_OF_THE_NAMESPACE = re.compile("violates PodSecurity|failed quota:| usage per ")
"""Refusals by what the fallback namespace has, and a team's would not."""
_UNABLE = re.compile("cannot (?:impersonate|create) resource|does not support dry run")
_OURS = "ValidatingAdmissionPolicy 'trainyard-teams-"
_OWN_QUOTA = "failed quota: team: must specify"
"""The stack's own quota, from an `up` that was killed before the limits which give pods their defaults."""


@dataclass(frozen=True)
class Trial:
    """An object that is tried, and what has come of it."""

    what: str
    content: Object
    where: str = ""
    """A pod's namespace."""
    refusal: str = ""
    made: Object | None = None

    @property
    def note(self) -> str:
        """What a user is to know who can go on; empty: nothing."""
        by_us = _OURS in self.refusal and "ownerReferences" in self.content["metadata"]
        why = "not tried:" if _UNABLE.search(self.refusal) else "a webhook has changed them:" if by_us else ""
        return f"{self.what} in {self.where}: {why} {self.refusal}" if why else ""

    @property
    def is_refused(self) -> bool:
        """Whether others refuse it, whatever runs at the moment."""
        of_namespace = self.where == FALLBACK and _OF_THE_NAMESPACE.search(self.refusal)
        passing = self.note or of_namespace or "exceeded quota" in self.refusal
        passing = passing or _OURS in self.refusal or _OWN_QUOTA in self.refusal
        return bool(self.refusal) and not passing


def try_pods(
    api: ApiServer, stack: Stack, states: Sequence[Mapping[str, Any]]
) -> tuple[list[Problem], list[str]]:
    """Return what is refused or changed, and notes of what could not be tried; `states`: as of `examine`."""
    spaces = [each for each in states if _is_of_team(each)]
    with ThreadPoolExecutor(WORKERS) as pool:
        there = pool.map(lambda each: api.find(f"/api/v1/namespaces/{_name(each)}"), spaces)
        is_there = list(map(bool, there))
        trials = list(_trials(stack, states, zip(spaces, is_there, strict=True)))
        done = list(pool.map(lambda each: _try(api, each), trials))
    fix = "leave the key out, and the stack creates it"
    missing = [
        Problem("teams[].namespace", _name(each), "the name of a namespace that exists", fix)
        for each, found in zip(spaces, is_there, strict=True)
        if not found and each["type"].endswith("Patch")
    ]
    notes = dict.fromkeys(each.note for each in done if each.note)
    if any(each.where == FALLBACK for each in done):
        which = f"pods were tried in namespace {FALLBACK}, since their team's does not exist yet"
        notes[f"{which}: policies for namespaces with certain labels were not asked"] = None
    found: dict[tuple[str, str], list[Trial]] = {}
    for each in done:
        for fault in _faults(each):
            found.setdefault(fault, []).append(each)
    allowed = "pods and namespaces as the stack makes them"
    refused = [Problem(_of_all(trials), got, allowed, fix) for (got, fix), trials in found.items()]
    return [*missing, *refused], list(notes)


def _of_all(trials: Sequence[Trial]) -> str:
    """Name those to which the same happens."""
    where = ", ".join(dict.fromkeys(each.where for each in trials))
    return ", ".join(dict.fromkeys(each.what for each in trials)) + (f" in {where}" if where else "")


def _name(state: Mapping[str, Any]) -> str:
    return str(state["inputs"]["metadata"]["name"])


def _is_of_team(state: Mapping[str, Any]) -> bool:
    labels = (state["inputs"].get("metadata") or {}).get("labels") or {}
    return state["type"].startswith("kubernetes:core/v1:Namespace") and TEAM_LABEL in labels


def _trials(
    stack: Stack, states: Iterable[Mapping[str, Any]], spaces: Iterable[tuple[Mapping[str, Any], bool]]
) -> Iterator[Trial]:
    """Yield each absent namespace, and each different pod in each namespace, or in the fallback for all."""
    queues = {queue.name: queue.flavors[0].pool for queue in stack.queues}
    pools = {team.name: queues.get(team.queue, "") for team in stack.teams}
    places: dict[str, str] = {}
    for each, is_there in spaces:
        name, team = _name(each), each["inputs"]["metadata"]["labels"][TEAM_LABEL]
        if not is_there and not each["type"].endswith("Patch"):
            yield Trial(f"Namespace {name}", each["inputs"])
        places |= {name: pools.get(team, "")} if is_there else {FALLBACK: ""}
    templates: dict[str, list[str]] = {}
    for state in states:
        if state["type"].endswith(":ClusterTrainingRuntime"):
            for job in state["inputs"]["spec"]["template"]["spec"]["replicatedJobs"]:
                text = json.dumps(job["template"]["spec"]["template"], sort_keys=True)
                templates.setdefault(text, []).append(state["inputs"]["metadata"]["name"])
    for text, runtimes in templates.items():
        for namespace, chosen in places.items():
            pod = _pod(json.loads(text), namespace, chosen)
            yield Trial(f"pods of {', '.join(runtimes)}", pod, namespace)


def _pod(template: Object, namespace: str, chosen: str) -> Object:
    """Make a pod as the Job controller does (job_controller.go), for the pool that a queue has chosen."""
    own = template.get("metadata") or {}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": JOB, "uid": _UID}
    labels = {"batch.kubernetes.io/job-name": JOB, "batch.kubernetes.io/controller-uid": _UID}
    metadata: dict[str, Any] = {
        "name": f"{JOB}-0",
        "namespace": namespace,
        "labels": {**(own.get("labels") or {}), **labels},
        "annotations": dict(own.get("annotations") or {}),
        "finalizers": ["batch.kubernetes.io/job-tracking"],
        "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
    }
    spec = dict(template["spec"])
    if chosen:
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), POOL_LABEL: chosen}
    else:  # a team's namespace keeps meshes out by marks like these
        metadata["labels"]["sidecar.istio.io/inject"] = "false"
        metadata["annotations"]["linkerd.io/inject"] = "disabled"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _try(api: ApiServer, trial: Trial) -> Trial:
    path = "/api/v1/namespaces" + (f"/{trial.where}/pods" if trial.where else "")
    user = JOB_CONTROLLER if trial.where else ""
    try:
        made = api.create(path, trial.content, {"dryRun": "All"}, user=user)
    except ApiError as error:
        metadata = trial.content["metadata"]
        if f'"{JOB}" not found' not in error.message or "ownerReferences" not in metadata:
            return replace(trial, refusal=" ".join(error.message.split()))
        # Kueue's webhook looks the Job up, and there is none (jobframework/reconciler.go).
        alone = {key: value for key, value in metadata.items() if key != "ownerReferences"}
        return _try(api, replace(trial, content={**trial.content, "metadata": alone}))
    return replace(trial, made=made)


def _faults(trial: Trial) -> Iterator[tuple[str, str]]:
    """Yield what is wrong, and the line to write."""
    if trial.is_refused:
        for pattern, who, fix in _REFUSED_BY:
            if match := re.search(pattern, trial.refusal):
                yield f"refused by {who.format(*match.groups())}: {trial.refusal}", fix
                break
    for text in _additions(trial.content.get("spec") or {}, (trial.made or {}).get("spec") or {}):
        yield f"a webhook puts in {text}", f"write `{_NO_TEAM}` into its MutatingWebhookConfiguration"


def _additions(sent: Object, made: Object) -> Iterator[str]:
    known = {
        each["name"] for kind in ("containers", "initContainers", "volumes") for each in sent.get(kind, ())
    }
    for kind in ("containers", "initContainers", "volumes"):
        for each in made.get(kind) or ():
            own = each.get("securityContext") or {}
            rights = own.get("privileged") or own.get("runAsUser") == 0
            if each["name"] in known:
                continue
            if rights or (own.get("capabilities") or {}).get("add"):
                yield f"container {each['name']}, whose rights (root, capabilities) admission refuses"
            elif kind == "containers":
                yield f"container {each['name']}, which runs on when the ranks have ended"
            elif kind == "volumes" and (kinds := sorted(set(each) - set(VOLUME_KINDS))):
                yield f"volume {each['name']} of kind {', '.join(kinds)}, which admission refuses"
