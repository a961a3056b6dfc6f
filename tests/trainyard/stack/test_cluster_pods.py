"""One pod per runtime and team is tried by a dry run: who would refuse or change it is known before a job."""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.common.names import POOL_LABEL, TEAM_LABEL
from infra.platform.admission.rules import JOB_CONTROLLER
from tests.objects import Object, thing
from tests.trainyard.stack.test_cluster import RECORDED, announced, found, only
from trainyard.stack.cluster.pods import JOB

POD = {"metadata": {"annotations": {"a": "b"}}, "spec": {"containers": [{"name": "node"}], "volumes": []}}
TEAM = thing("v1", "Namespace", "team-research", labels={TEAM_LABEL: "research"})


def runtime(name: str, *pods: Object) -> Object:
    jobs = [{"name": "node", "template": {"spec": {"template": pod}}} for pod in pods]
    spec = {"template": {"spec": {"replicatedJobs": jobs}}}
    return thing("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", name, spec=spec)


def states(*runtimes: Object) -> list[Mapping[str, Any]]:
    """The resources of a stack that is up: none is to be created."""
    made = announced(TEAM, *(runtimes or [runtime("torch-tcp", POD)]))
    return [{**each, "is_known": True} for each in made]


def test_each_different_pod_is_made_as_the_job_controller_makes_it() -> None:
    tried: list[tuple[Object, str]] = []

    def admit(pod: Object, user: str) -> Object:
        tried.append((pod, user))
        return pod

    other = {**POD, "spec": {"containers": [{"name": "sshd"}]}}
    runtimes = [runtime("torch-tcp", POD), runtime("torch-distributed", POD), runtime("mpi-tcp", POD, other)]
    assert found(TEAM, to_create=states(*runtimes), admit=admit).problems == ()
    assert {user for _, user in tried} == {JOB_CONTROLLER}
    assert sorted(pod["spec"]["containers"][0]["name"] for pod, _ in tried) == ["node", "sshd"]
    for pod, _ in tried:
        about = pod["metadata"]
        assert (about["namespace"], about["labels"]["batch.kubernetes.io/job-name"]) == ("team-research", JOB)
        assert about["ownerReferences"][0]["controller"] and about["finalizers"] and about["annotations"]
        assert pod["spec"]["nodeSelector"] == {POOL_LABEL: "gpu"}


@pytest.mark.parametrize(("message", "answer"), RECORDED["refusals"])
def test_a_refused_pod_is_a_finding_with_who_refuses_it_and_the_line_to_write(
    message: str, answer: list[str]
) -> None:
    who, line = answer
    problem = only(found(TEAM, to_create=states(), admit=lambda *_: message))
    assert problem.path == "pods of torch-tcp in team-research"
    assert problem.got.startswith(f"refused by {who}") and message in problem.got
    assert line in problem.fix


@pytest.mark.parametrize(("message", "note"), RECORDED["notes"].items())
def test_what_is_no_refusal_of_others_is_at_most_a_note(message: str, note: str) -> None:
    findings = found(TEAM, to_create=states(), admit=lambda *_: message)
    assert findings.problems == ()
    assert [note in each for each in findings.notes] == ([True] if note else [])


def test_a_webhook_that_looks_for_the_pods_job_gets_a_pod_without_owner() -> None:
    missing = f'admission webhook "mpod.kb.io" denied the request: Job.batch "{JOB}" not found'
    findings = found(
        TEAM,
        to_create=states(),
        admit=lambda pod, _: missing if "ownerReferences" in pod["metadata"] else "exceeds 9",
    )
    assert only(findings).got == "refused by the API server: exceeds 9"


def test_teams_without_a_namespace_are_tried_in_another_one_by_what_holds_there_too() -> None:
    tried: list[Object] = []

    def admit(each: Object, user: str) -> Object | str:
        tried.append(each)
        return each if each["kind"] == "Namespace" else 'violates PodSecurity "restricted:latest"'

    findings = found(to_create=announced(TEAM, runtime("torch-tcp", POD)), admit=admit)
    assert findings.problems == () and "in namespace default" in findings.notes[0]
    assert [each["kind"] for each in sorted(tried, key=lambda each: each["kind"])] == ["Namespace", "Pod"]
    patch = [{**each, "type": f"{each['type']}Patch"} for each in announced(TEAM)]
    assert only(found(to_create=patch)).path == "teams[].namespace"
    refused = found(to_create=announced(TEAM), admit=lambda *_: 'webhook "rancher.cattle.io" denied it')
    assert only(refused).path == "Namespace team-research"


@pytest.mark.parametrize(("kind", "added", "words"), RECORDED["additions"])
def test_what_a_webhook_puts_into_pods_is_compared_with_the_admission_rules(
    kind: str, added: Object, words: str
) -> None:
    def admit(pod: Object, _: str) -> Object:
        return {**pod, "spec": {**pod["spec"], kind: [*pod["spec"].get(kind, []), added]}}

    problems = found(TEAM, to_create=states(), admit=admit).problems
    assert [words in each.got and added["name"] in each.got for each in problems] == ([True] if words else [])
