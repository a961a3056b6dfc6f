"""The controller's task on a real API server, with the rights of its own accounts."""

import json
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.controller.api import Api, RefusedError
from infra.controller.lease import SECONDS, Lease
from infra.controller.main import NAME, UNSTARTABLE
from infra.controller.unstartable import Unstartable, cannot_start
from infra.platform.controller import FILES, RULES, START, program_files
from rehearsal.leaks import kinds_in
from tests.infra.api_server import ADMIN, BareServer, api_server
from tests.infra.controller.test_reasons import CASES, events_of, pod_of
from tests.infra.plan import Plan
from tests.infra.platform.admission.test_admission_served import MAIN, USER, definitions

TEAM, OTHER = "team-research", "team-platform"
WORKLOADS = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{TEAM}/workloads"
CONDITIONS = [
    {
        "type": "Admitted",
        "status": "True",
        "reason": "Admitted",
        "message": "",
        "lastTransitionTime": "2026-11-28T08:00:00Z",
    }
]


@pytest.fixture(scope="module")
def server(local_plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareServer]:
    """An API server with the controller's namespace, accounts and rights, and those of the teams."""
    with api_server(tmp_path_factory.mktemp("api-server")) as server:
        for each in definitions(local_plan, "workloads.kueue.x-k8s.io"):
            server.apply(each)
        for kind in ("Namespace", "ServiceAccount", "Role", "ClusterRole", "RoleBinding"):
            for each in local_plan.named(kind).values():
                if (
                    kind == "Namespace"
                    or NAME in each["metadata"]["name"]
                    or each["metadata"].get("namespace") == NAME
                ):
                    server.apply(each)
        yield server


@pytest.fixture(scope="module")
def admin(server: BareServer) -> Api:
    return Api(server.address, ssl._create_unverified_context(), lambda: ADMIN)


@pytest.fixture(scope="module")
def controller(admin: Api) -> Api:
    """The controller's own account, as its pod has it."""
    return admin.as_account(NAME, NAME)


def workload(name: str, **labels: str) -> dict[str, Any]:
    spec = {
        "podSets": [{"name": "node", "count": 1, "template": {"spec": {"containers": []}}}],
        "active": True,
    }
    owner = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "name": f"job-of-{name}",
        "uid": "1",
    }
    about = {"name": name, "namespace": TEAM, "labels": labels, "ownerReferences": [owner]}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": about, "spec": spec}


def put(admin: Api, name: str, case: Mapping[str, Any], **labels: str) -> None:
    """Put an admitted Workload, its pod and the pod's events as the cluster writes them."""
    admin.create(WORKLOADS, workload(name, **labels))
    admin.merge(f"{WORKLOADS}/{name}/status", {"status": {"conditions": CONDITIONS}})
    pods, made = f"/api/v1/namespaces/{TEAM}/pods", pod_of(dict(case))
    about = {"name": name, "annotations": {"kueue.x-k8s.io/workload": name}}
    pod = admin.create(pods, {"metadata": about, "spec": {"securityContext": USER, "containers": [MAIN]}})
    statuses = [
        {
            "name": "main",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            **each,
            **known(each),
        }
        for each in made["status"]["containerStatuses"]
    ]
    status = {**made["status"], "containerStatuses": statuses}
    admin.merge(f"{pods}/{name}/status", {"status": status})
    for number, event in enumerate(events_of(dict(case))[1:]):
        concerned = {"kind": "Pod", "namespace": TEAM, "name": name, "uid": pod["metadata"]["uid"]}
        body = {"metadata": {"name": f"{name}.{number}"}, **event, "involvedObject": concerned}
        admin.create(f"/api/v1/namespaces/{TEAM}/events", body)


def known(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return the states that a container of a case has."""
    states = ("state", "lastState")
    return {each: {key: value for key, value in container[each].items() if value} for each in states}


def ended(admin: Api) -> dict[str, str]:
    """Return why each deactivated Workload cannot start."""
    return {
        each["metadata"]["name"]: cannot_start(each)
        for each in admin.items(WORKLOADS)
        if not each["spec"]["active"]
    }


def test_what_waiting_does_not_heal_ends_after_its_time_and_all_else_waits_on(
    admin: Api, controller: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("infra.controller.unstartable.time.monotonic", lambda: now[0])
    account = controller.as_account(NAME, UNSTARTABLE)
    task = Unstartable(account)
    cases = {f"case-{number}": case for number, case in enumerate(CASES)}
    for name, case in cases.items():
        put(admin, name, case)
    lost = next(case for case in CASES if case.get("kind") == "secret-missing" and "waiting" in case)
    put(admin, "of-another-cluster", lost, **{"kueue.x-k8s.io/multikueue-origin": "west"})
    put(admin, "healed", lost)
    task.look((TEAM, OTHER), 120)
    admin.merge(f"/api/v1/namespaces/{TEAM}/pods/healed/status", {"status": {"containerStatuses": None}})
    now[0] = 119.0
    task.look((TEAM, OTHER), 120)
    assert not ended(admin)
    now[0] = 120.0
    task.look((TEAM, OTHER), 120)
    never = {name for name, case in cases.items() if case.get("kind") and not case.get("heals", False)}
    found = ended(admin)
    assert found.keys() == never and len(never) >= 8 and len(cases) - len(never) >= 20
    assert all(cases[name].get("text", "") in text for name, text in found.items())
    events = [
        each for each in admin.items(f"/api/v1/namespaces/{TEAM}/events") if each["reason"] == "CannotStart"
    ]
    assert {each["involvedObject"]["name"] for each in events} == {f"job-of-{name}" for name in never}

    # A job that was resumed, or paused later, does not show what held when the controller ended it.
    resumed = sorted(never)[0]
    for active in (True, False):
        admin.merge(f"{WORKLOADS}/{resumed}", {"spec": {"active": active}})
    assert ended(admin)[resumed] == ""


def test_its_pod_needs_python_alone(tmp_path: Path) -> None:
    folder = tmp_path / "infra" / "controller"
    folder.mkdir(parents=True)
    for name, text in program_files().items():
        (folder / name).write_text(text)
    start = START.replace(FILES, str(tmp_path)).replace("main()", "print(main.__module__)")
    done = subprocess.run([sys.executable, "-IS", "-c", start], capture_output=True, text=True, check=True)
    assert done.stdout == "infra.controller.main\n"
    assert kinds_in(json.dumps(program_files())) == set(), "a rehearsal would take it for a secret"


def test_each_account_has_the_rights_of_its_task_and_no_more(controller: Api) -> None:
    task = controller.as_account(NAME, UNSTARTABLE)
    refused = [
        (controller, f"/api/v1/namespaces/{TEAM}/pods"),
        (controller, f"/api/v1/namespaces/{NAME}/secrets"),
        (task, f"/api/v1/namespaces/{TEAM}/secrets"),
        (task, "/api/v1/namespaces/kube-system/pods"),
        (task, "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"),
    ]
    for account, path in refused:
        with pytest.raises(RefusedError, match="403"):
            account.items(path)
    with pytest.raises(RefusedError, match="403"):
        controller.as_account("kube-system", "default").items(f"/api/v1/namespaces/{TEAM}/pods")
    assert {verb for rule in RULES[UNSTARTABLE] for verb in rule["verbs"]} == {"create", "list", "patch"}


def test_one_pod_acts_at_a_time_and_the_next_one_at_once_after_its_end(
    controller: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (Lease(controller, NAME, NAME, name) for name in ("first", "second"))
    assert first.held() and first.held() and not second.held()
    first.release()
    assert second.held() and not first.held()
    later = time.monotonic() + SECONDS + 1  # the second does not renew it, as if its node had died
    monkeypatch.setattr("infra.controller.lease.time.monotonic", lambda: later)
    assert first.held() and not second.held()
