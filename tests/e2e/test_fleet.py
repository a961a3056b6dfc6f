"""Two clusters of this host, joined by a fleet: a job is submitted to one and runs on the other."""

import base64
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.paths import REPOSITORY
from infra.common import names
from local.cluster.commands import program, run
from local.cluster.layout import Layout
from tests.e2e.machine import Traces
from tests.e2e.stack import FAR, NETWORK, CommandResult, Declaration, LocalStack, patched
from tests.processes import capture
from tests.tables import table

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

FAR_NETWORK = {"pod_cidr": "10.234.0.0/16", "service_cidr": "10.235.0.0/16", "node_cidr": "10.236.0.0/24"}
BETWEEN = IPv4Network("10.237.0.0/30")
FLEET, QUEUE, NAMESPACE = "joined", "anywhere", "team-research"
LIFETIME_SECONDS = 600  # as in fleet.yaml
LEEWAY_SECONDS = 90
"""An API server accepts a token for a minute longer, and caches the result for ten seconds."""
SECRET = f"fleet-{FLEET}-{FAR}"


def two_nodes(declaration: Declaration) -> None:
    """Edit to the fewest nodes of a worker, so that this host has room for two clusters."""
    declaration["pools"] = [pool for pool in declaration["pools"] if pool["capacity"] != "spot"]
    declaration["pools"][-1]["nodes"] = 1
    declaration["queues"][0]["flavors"] = [{"pool": "on-demand", "quota": 1}]


class FleetOfTwo:
    """A fleet of both clusters, operated as users do, by a stack file and plain Pulumi."""

    def __init__(self, manager: LocalStack, far: LocalStack) -> None:
        self.hub, self.far = manager, far
        self.file = manager.stacks / f"Pulumi.{FLEET}.yaml"

    def declare(self, serial: int = 0, **queue: Any) -> None:
        config = table(__file__, "fleet")
        config["trainyard:fleet"]["credentials"]["serial"] = serial
        config["trainyard:fleet"]["queues"][0] |= queue
        self.file.write_text(yaml.safe_dump({"config": config}))

    def init(self) -> None:
        """Initialize the stack in a separate project, since Pulumi writes its salt beside the project."""
        settings = self.hub.folder / "settings"
        settings.mkdir()
        (settings / "Pulumi.yaml").write_text("{name: trainyard, runtime: python}\n")
        self.hub.by_hand(f"pulumi -C {settings} stack init {FLEET}")

    def pulumi(self, words: str) -> CommandResult:
        """Run Pulumi on a copy of the stack file, since it writes to the file."""
        copy = self.hub.folder / "fleet.yaml"
        copy.write_text(self.file.read_text())
        return self.hub.by_hand(f"pulumi {words} --non-interactive -s {FLEET} --config-file {copy}")

    def up(self) -> CommandResult:
        return self.pulumi("up --yes --policy-pack policies")

    @property
    def kubeconfig(self) -> dict[str, Any]:
        """Return the worker's kubeconfig in the manager's Secret."""
        secret = self.hub.get("secret", "-n", "kueue-system", SECRET)
        found: dict[str, Any] = yaml.safe_load(base64.b64decode(secret["data"]["kubeconfig"]))
        return found

    @property
    def token(self) -> str:
        return str(self.kubeconfig["users"][0]["user"]["token"])

    @property
    def connected(self) -> bool:
        return _condition(self.hub.get("multikueuecluster", FAR), "Active") == "True"

    def submit(self, name: str, queue: str = QUEUE) -> None:
        job = yaml.safe_load((REPOSITORY / "examples" / "trainjob.yaml").read_text())
        job["metadata"]["name"] = name
        job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = queue
        job["spec"]["trainer"]["numNodes"] = 1
        arguments = job["spec"]["trainer"]["args"]
        job["spec"]["trainer"]["args"] = [
            each.replace("/example/", f"/{name}/").replace("steps=60", "steps=20") for each in arguments
        ]
        self.hub.apply(job)

    def completes(self, name: str) -> None:
        self.hub.wait_until(
            lambda: _condition(self.hub.get("trainjob", "-n", NAMESPACE, name), "Complete") == "True",
            f"reported at the manager that {name} is complete",
        )

    def may(self, verb: str, resource: str, *where: str) -> bool:
        """Whether the manager's account may do this on the worker, by the worker's access review."""
        kubectl = [f"{REPOSITORY}/.trainyard/bin/kubectl", f"--kubeconfig={self.far.kubeconfig}"]
        account = f"--as=system:serviceaccount:fleet-{FLEET}:hub"
        return capture([*kubectl, "auth", "can-i", verb, resource, *where, account]).stdout.strip() == "yes"

    def authenticates(self, token: str) -> bool:
        """Whether the worker authenticates this token."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        output = self.far.kubectl("create", "--filename=-", "--output=json", given=json.dumps(review))
        return bool(json.loads(output)["status"].get("authenticated"))


def _condition(found: dict[str, Any], kind: str) -> str:
    conditions = found.get("status", {}).get("conditions", [])
    return next((str(each["status"]) for each in conditions if each["type"] == kind), "")


def _claims(token: str) -> dict[str, Any]:
    body = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return found


def _join(manager: LocalStack, far: LocalStack) -> None:
    """Connect the two clusters' namespaces by a link, without a change on the host."""
    near, there = (Layout(stack.run).networks / "control" for stack in (manager, far))
    one, other = BETWEEN[1], BETWEEN[2]

    def ip(namespace: Path, *lines: str) -> None:
        command = (program("nsenter"), f"--net={namespace}", "--", program("ip"), "-batch", "-")
        run(*command, stdin="\n".join(lines))

    ip(near, f"link add fleet type veth peer name fleet netns {there}")
    forth = f"route add {FAR_NETWORK['node_cidr']} via {other}"
    ip(near, f"address add {one}/30 dev fleet", "link set fleet up", forth)
    back = [f"route add {NETWORK[name]} via {one}" for name in ("node_cidr", "pod_cidr")]
    ip(there, f"address add {other}/30 dev fleet", "link set fleet up", *back)


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FleetOfTwo]:
    """Both clusters, up and linked, with the fleet declared and not up."""
    folder = tmp_path_factory.mktemp("fleet")
    manager, far = LocalStack(folder), LocalStack(folder, name=FAR)
    before = {stack.name: Traces.of(folder, stack.name) for stack in (manager, far)}
    manager.declare(two_nodes)
    far.declare(two_nodes, patched({"target.network": FAR_NETWORK}))
    fleet = FleetOfTwo(manager, far)
    try:
        for stack in (far, manager):
            stack.trainyard("up")
        _join(manager, far)
        fleet.declare()
        fleet.init()
        yield fleet
    finally:
        for stack in (manager, far):
            stack.trainyard("down", "--purge")
    for stack in (manager, far):
        assert Traces.of(folder, stack.name).beyond(before[stack.name]) == {}


@pytest.fixture(scope="module")
def up(joined: FleetOfTwo) -> FleetOfTwo:
    """The fleet, up and connected."""
    joined.up()
    joined.hub.wait_until(lambda: joined.connected, "connected")
    return joined


def test_a_worker_outside_of_the_residency_is_refused_before_anything_is_created(joined: FleetOfTwo) -> None:
    joined.declare(residency=["in:us"], workers=[FAR])
    try:
        with pytest.raises(AssertionError) as refused:
            joined.pulumi("preview")
    finally:
        joined.declare()
    assert "queues[0].workers[0]" in str(refused.value)
    assert "got:     'far', which is in de" in str(refused.value)
    assert joined.hub.names("multikueueclusters") == []


def test_a_location_outside_of_the_stacks_residency_is_refused_by_the_policies(joined: FleetOfTwo) -> None:
    document = yaml.safe_load(joined.file.read_text())
    document["config"]["trainyard:residency"] = {"allowed": ["in:us"]}
    joined.file.write_text(yaml.safe_dump(document))
    try:
        with pytest.raises(AssertionError, match="residency-multikueue"):
            joined.pulumi("preview --policy-pack policies")
    finally:
        joined.declare()


def test_a_job_of_the_hub_runs_on_the_worker_and_its_end_is_seen_at_the_hub(up: FleetOfTwo) -> None:
    up.submit("sent")

    def sent_to() -> list[str]:
        found = up.hub.get("workloads", "-n", NAMESPACE)["items"]
        return [each.get("status", {}).get("clusterName", "") for each in found]

    up.hub.wait_until(lambda: sent_to() == [FAR], "given to the worker")
    up.completes("sent")
    assert up.hub.names("pods", "-n", NAMESPACE, "-l", "jobset.sigs.k8s.io/jobset-name") == []
    assert up.far.run_of("sent").sha256
    assert not up.hub.run_of("sent").folder.exists()
    # The worker's copy is deleted when the job ends; its checkpoints are retained.
    up.hub.wait_until(lambda: up.far.names("trainjobs", "-n", NAMESPACE) == [], "removed from the worker")


def test_a_job_of_a_queue_that_no_worker_has_remains_at_the_hub(up: FleetOfTwo) -> None:
    up.submit("kept", queue="home")
    time.sleep(10)
    assert up.hub.get("trainjob", "-n", NAMESPACE, "kept")["spec"]["suspend"] is True
    assert "kept" not in up.far.names("trainjobs", "-n", NAMESPACE)
    up.hub.kubectl("delete", "trainjob", "-n", NAMESPACE, "kept")


def test_the_hubs_account_may_send_jobs_to_its_teams_and_nothing_else(up: FleetOfTwo) -> None:
    team = ("-n", NAMESPACE)
    assert up.may("create", "trainjobs.trainer.kubeflow.org", *team)
    assert up.may("watch", "workloads.kueue.x-k8s.io", "-A")
    for verb, resource, *where in (
        ("create", "trainjobs.trainer.kubeflow.org", "-n", "team-platform"),
        ("update", "trainjobs.trainer.kubeflow.org", *team),
        ("create", "jobs.batch", *team),
        ("get", "secrets", *team),
        ("get", "pods", *team),
        ("create", "pods", *team),
        ("create", "serviceaccounts", "--subresource=token", "-n", f"fleet-{FLEET}"),
        ("update", "clusterqueues.kueue.x-k8s.io"),
    ):
        assert not up.may(verb, resource, *where), (verb, resource, where)


def test_the_token_is_in_no_state_and_no_log(up: FleetOfTwo) -> None:
    token = up.token
    files = (path for path in (up.hub.state / "pulumi").rglob("*") if path.is_file())
    assert [path for path in files if token.encode() in path.read_bytes()] == []
    assert token not in up.hub.by_hand(f"pulumi stack export --show-secrets -s {FLEET}").out
    assert _claims(token)["exp"] - _claims(token)["iat"] == LIFETIME_SECONDS


def test_a_raised_serial_issues_another_token_with_which_jobs_continue(up: FleetOfTwo) -> None:
    first = up.token
    up.declare(serial=1)
    assert "RotatedKubeconfig joined-far updated" in up.up().out
    assert up.token != first
    up.submit("later")
    up.completes("later")
    assert up.far.run_of("later").sha256


def test_a_removed_fleet_leaves_nothing_on_either_cluster(up: FleetOfTwo) -> None:
    up.hub.kubectl("delete", "trainjobs", "--all", "-n", NAMESPACE)
    up.hub.wait_until(lambda: up.far.names("trainjobs", "-n", NAMESPACE) == [], "removed from the worker")
    up.pulumi("destroy --yes")
    for stack in (up.hub, up.far):
        assert stack.names("multikueueclusters") == []
        assert stack.names("clusterqueues") == ["gpu"]
        assert stack.names("localqueues", "-n", NAMESPACE) == ["research"]
        assert stack.names("resourceflavors") == ["on-demand"]
        assert stack.names("topologies") == [names.TOPOLOGY]
        kinds = (
            "clusterroles,clusterrolebindings,rolebindings,namespaces,serviceaccounts,secrets,admissionchecks"
        )
        left = [name for name in stack.names(kinds, "-A") if name.startswith("fleet-")]
        assert left == []
        assert list(stack.trainyard("up").changes) == ["unchanged"]


def test_an_update_after_half_of_a_tokens_lifetime_issues_another_one(up: FleetOfTwo) -> None:
    up.up()  # again, after it was removed
    first = up.token
    assert "RotatedKubeconfig joined-far updated" not in up.up().out
    half = _claims(first)["iat"] + LIFETIME_SECONDS / 2
    time.sleep(max(0.0, half - datetime.now(UTC).timestamp()) + 2)
    assert "RotatedKubeconfig joined-far updated" in up.up().out
    second = up.token
    assert second != first
    # After its end the first token is refused.
    time.sleep(max(0.0, _claims(first)["exp"] - datetime.now(UTC).timestamp()) + LEEWAY_SECONDS)
    assert not up.authenticates(first)
    assert up.authenticates(second)
    assert up.connected
    up.submit("last")
    up.completes("last")
    assert up.far.run_of("last").sha256
    up.hub.kubectl("delete", "trainjobs", "--all", "-n", NAMESPACE)
    up.pulumi("destroy --yes")
