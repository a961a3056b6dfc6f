"""The preflight of a Google Cloud project reports what it lacks before `up`; a fake serves the APIs."""

import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

import catalog
from catalog import Machine
from infra.clients.gcp import GcpClient
from infra.stackfile import Stack, load, parse
from infra.stackfile.node_pool import NodePoolSpec
from infra.targets.gcp.account.preflight import problems
from infra.targets.gcp.account.quotas import _short_families, _unknown, short_quotas
from infra.targets.gcp.stackfile.groups import GkePool, groups
from infra.targets.gcp.stackfile.target import GcpSpec
from tests.infra.plan import stack_file
from tests.infra.targets.gcp.stacks import with_provider
from tests.tables import table

RESERVATION = "/compute/v1/projects/example-training/zones/europe-west1-b/reservations/h200-training"
REGION = "/compute/v1/projects/example-training/regions/europe-west1"
BUCKET = "/storage/v1/b/example-training-checkpoints"


class FakeGcpProject:
    """A fake project that lacks nothing; tests remove parts of it."""

    def __init__(self) -> None:
        self.number = "123456789012"
        self.off: set[str] = set()
        self.lacking: set[str] = set()
        self.no_machines_in = ""
        self.region = [quota("CPUS", 24), quota("C3_CPUS", 264)]
        self.networks = quota("NETWORKS", 15, 5)
        self.families: dict[str, Any] = {
            "PREEMPTIBLE-NVIDIA-H200-GPUS-per-project-region": [limit(64, region="europe-west1"), limit(0)]
        }
        self.reservation: dict[str, Any] = reserved("a3-ultragpu-8g", 2)
        self.lustre = "10.9.8.7@tcp:/data"
        self.cluster: dict[str, Any] = table(__file__, "cluster")
        self.bucket: tuple[int, dict[str, str]] = (404, {})

    def answer(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path.endswith("services:batchGet"):
            return ok(services=[self._service(name) for name in request.url.params.get_list("names")])
        if path.endswith(":testIamPermissions"):
            asked = json.loads(request.content)["permissions"]
            return ok(permissions=[right for right in asked if right not in self.lacking])
        if "/machineTypes/" in path:
            offered = not self.no_machines_in or self.no_machines_in not in path
            return ok(name=path) if offered else httpx.Response(404, json={"error": {"message": "no"}})
        if "/quotaInfos/" in path:
            if self.families is None:
                return httpx.Response(403, json={"error": {"message": "the API is off"}})
            return ok(dimensionsInfos=self.families.get(path.rpartition("/")[2], []))
        if "/clusters/" in path:
            name = path.rpartition("/")[2]
            return (
                ok(**self.cluster)
                if name == "shared"
                else httpx.Response(404, json={"error": {"message": "no"}})
            )
        if "/instances/" in path:
            point = self.lustre
            return ok(mountPoint=point) if point else httpx.Response(404, json={"error": {"message": "no"}})
        if path == BUCKET:
            return httpx.Response(self.bucket[0], json=self.bucket[1])
        answers: dict[str, dict[str, Any]] = {
            "/v1/projects/example-training": {"projectNumber": self.number},
            "/compute/v1/projects/example-training": {"quotas": [self.networks]},
            REGION: {"quotas": self.region},
            RESERVATION: self.reservation,
        }
        return ok(**answers[path])

    def _service(self, name: str) -> dict[str, Any]:
        service = name.rpartition("/")[2]
        return {"config": {"name": service}, "state": "DISABLED" if service in self.off else "ENABLED"}


def ok(**data: Any) -> httpx.Response:
    return httpx.Response(200, json=data)


def quota(metric: str, limit: float, usage: float = 0) -> dict[str, Any]:
    return {"metric": metric, "limit": limit, "usage": usage}


def limit(value: int, **dimensions: str) -> dict[str, Any]:
    """Return an entry of the Cloud Quotas API, which has numbers as strings."""
    return {"details": {"value": str(value)}, "dimensions": dimensions}


def reserved(machine: str, count: int, used: int = 0) -> dict[str, Any]:
    properties = {"machineType": machine}
    return {
        "specificReservation": {
            "count": str(count),
            "inUseCount": str(used),
            "instanceProperties": properties,
        }
    }


@pytest.fixture
def project() -> FakeGcpProject:
    return FakeGcpProject()


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(stack_file("gcp"))


def found(stack: Stack, project: FakeGcpProject) -> dict[str, str]:
    spec = stack.target
    assert isinstance(spec, GcpSpec)
    gcp = GcpClient("token", httpx.MockTransport(project.answer))
    return {problem.path: problem.got for problem in problems(stack, spec, gcp)}


def test_a_project_that_lacks_nothing_has_no_problem(stack: Stack, project: FakeGcpProject) -> None:
    assert found(stack, project) == {}


def test_an_endpoint_in_a_new_network_is_refused_since_no_host_reaches_it(
    stack: Stack, project: FakeGcpProject
) -> None:
    assert isinstance(stack.target, GcpSpec)
    access = stack.target.access.model_copy(update={"dns_endpoint": False})
    private = with_provider(stack, access=access)
    assert found(private, project).keys() == {"target.access.dns_endpoint"}
    assert found(private.model_copy(update={"name": "shared"}), project) == {}


@pytest.mark.parametrize(("change", "path", "got"), table(__file__, "missing"))
def test_each_missing_part_is_reported(
    stack: Stack, project: FakeGcpProject, change: dict[str, Any], path: str, got: str
) -> None:
    for name, value in change.items():
        setattr(project, name, value)
    problems = found(stack, project)
    assert problems[path] == got
    assert {other for other in problems if other != path} <= {"pools[system].zones"}


def test_a_missing_existing_bucket_is_reported_for_gcp(stack: Stack, project: FakeGcpProject) -> None:
    data = stack.model_dump(mode="json", by_alias=True, exclude_unset=True)
    data["target"]["existing_bucket"] = True
    problems = found(parse(data), project)
    assert problems == {"storage.object_store.bucket": "example-training-checkpoints does not exist"}


@pytest.mark.parametrize(
    ("mount_point", "problem"),
    [
        ("10.9.8.7@tcp:/data", {}),
        ("10.9.8.7@tcp:/other", {"target.filesystem.existing": "10.9.8.7@tcp:/data"}),
        ("", {"target.filesystem.existing": "scratch: not in europe-west1-b"}),
    ],
)
def test_an_existing_lustre_must_match_the_file(
    mount_point: str, problem: dict[str, str], stack: Stack, project: FakeGcpProject
) -> None:
    data = stack.model_dump(mode="json", by_alias=True, exclude_unset=True)
    names = {"subnetwork": "gpu", "pods_range": "pods", "services_range": "services"}
    data["target"]["network"] = {"existing": {"network": "shared", **names}}
    existing = {"instance": "scratch", "address": "10.9.8.7", "name": "data"}
    data["target"]["filesystem"]["existing"] = existing
    project.lacking, project.lustre = {"lustre.instances.create"}, mount_point
    assert found(parse(data), project) == problem


@pytest.mark.parametrize(("change", "name", "problem"), table(__file__, "existing_cluster"))
def test_an_existing_cluster_matches_the_file(
    change: dict[str, Any], name: str, problem: dict[str, str], stack: Stack, project: FakeGcpProject
) -> None:
    data = stack.model_dump(mode="json", by_alias=True, exclude_unset=True)
    names = {"subnetwork": "gpu", "pods_range": "pods", "services_range": "services"}
    data["target"]["network"] = {"existing": {"network": "shared", **names}}
    data["target"]["access"] = {"admins": ["group:platform@example.com"]}
    data["teams"] = [{"name": team["name"]} for team in data["teams"]]
    data["target"]["existing_cluster"] = {
        "name": name,
        "endpoint": "https://gke-0a1b2c3d.europe-west1.gke.goog",
        "version": "1.35",
        "features": ["workload-identity", "gcs-fuse", "lustre", "dataplane-v2", "multi-networking"],
    }
    project.cluster |= change
    project.lacking = {"container.clusters.create"}
    problems = found(parse(data), project)
    assert {path.rpartition(".")[2]: got for path, got in problems.items()} == problem


def test_the_rights_of_declared_break_glass_are_checked(stack: Stack, project: FakeGcpProject) -> None:
    project.off = {"privilegedaccessmanager.googleapis.com"}
    project.lacking = {"privilegedaccessmanager.entitlements.create"}
    assert found(stack, project) == {}
    data = stack.model_dump(mode="json", by_alias=True, exclude_unset=True)
    data["target"]["access"]["break_glass"] = ["group:on-call@example.com"]
    assert found(parse(data), project) == {
        "APIs of the project": "privilegedaccessmanager.googleapis.com: off",
        "IAM permissions of the caller": "not privilegedaccessmanager.entitlements.create",
    }


SPOT_H200 = "PREEMPTIBLE-NVIDIA-H200-GPUS-per-project-region"
GPU_FAMILY = "GPUS-PER-GPU-FAMILY-per-project-region"
IN_REGION = "NVIDIA_H200 in europe-west1"


@pytest.mark.parametrize(
    ("entries", "path", "got"),
    [
        ([limit(16, region="europe-west1"), limit(64)], f"quota: {SPOT_H200}, {IN_REGION}", "32 are needed"),
        ([limit(64, region="us-east4")], f"quota: {SPOT_H200}, {IN_REGION}", "32 are needed"),
        ([limit(-1)], None, None),
        ([limit(0), limit(32, region="europe-west1")], None, None),
    ],
)
def test_quotas_of_machine_families_come_from_the_cloud_quotas_api(
    stack: Stack, project: FakeGcpProject, entries: list[Any], path: str | None, got: str | None
) -> None:
    project.families[SPOT_H200] = entries
    assert found(stack, project) == ({path: got} if path else {})


def test_a_quota_that_cannot_be_read_is_reported_as_unknown(stack: Stack, project: FakeGcpProject) -> None:
    project.families = None  # type: ignore[assignment]
    assert found(stack, project) == {f"quota: {SPOT_H200}, {IN_REGION}": "not known: 403: the API is off"}


def test_on_demand_machines_count_by_their_family(stack: Stack, project: FakeGcpProject) -> None:
    (reserved,) = (pool for pool in stack.pools if pool.name == "reserved")
    on_demand = reserved.model_copy(update={"capacity": "on-demand", "reservation": None})
    pools = tuple(on_demand if pool is reserved else pool for pool in stack.pools)
    other = stack.model_copy(update={"pools": pools})
    project.families[GPU_FAMILY] = [limit(8, region="europe-west1", gpu_family="NVIDIA_H200"), limit(99)]
    assert found(other, project) == {f"quota: {GPU_FAMILY}, {IN_REGION}": "16 are needed"}
    project.families[GPU_FAMILY] = [limit(16, region="europe-west1", gpu_family="NVIDIA_H200")]
    assert found(other, project) == {}


def test_slices_of_tpus_count_by_their_chips() -> None:
    tpus = load(stack_file("gcp-tpu"))
    spec = tpus.target
    assert isinstance(spec, GcpSpec)
    bought = [group for pool in tpus.pools for group in groups(pool, spec.zones)]
    nothing = GcpClient("token", httpx.MockTransport(lambda _: ok()))
    (problem,) = _short_families(bought, spec, nothing)
    assert problem.path.endswith("CT6E in europe-west4")
    assert problem.allowed == "none"
    chips = sum(group.num_nodes * 4 for group in bought if group.is_slice)
    assert problem.got == f"{chips} are needed"


def bought(machine: Machine, capacity: str = "on-demand") -> GkePool:
    """Make a pool of two machines."""
    topology = {"topology": machine.topologies[0]} if machine.topologies else {}
    usual = {"name": "work", "nodes": 2, "machine": machine.name, "capacity": capacity}
    pool = NodePoolSpec.model_validate({**usual, **topology})
    return GkePool("work", pool, machine, ("europe-west1-b",), 2)


@pytest.mark.parametrize("machine", catalog.machines(cloud="gcp"), ids=lambda machine: machine.name)
def test_every_machine_of_the_catalogue_has_a_quota_that_is_checked(machine: Machine, stack: Stack) -> None:
    spec = stack.target
    assert isinstance(spec, GcpSpec)
    nothing = GcpClient("token", httpx.MockTransport(lambda _: ok(quotas=[quota("NETWORKS", 99)])))
    unit = machine.num_accelerators or machine.vcpus
    reported_of = list(short_quotas(stack, [bought(machine)], spec, nothing))
    assert [each.got for each in reported_of] == [f"{2 * unit} are needed"]


@pytest.mark.parametrize(
    ("capacity", "asked"),
    [
        ("on-demand", "TPUS-PER-TPU-FAMILY-per-project-region, tpu7x in europe-west1"),
        ("spot", "PREEMPTIBLE-TPU7X-per-project-region, tpu7x in europe-west1"),
    ],
)
def test_tpu7x_has_separate_quotas_by_capacity_type(capacity: str, asked: str, stack: Stack) -> None:
    spec = stack.target
    assert isinstance(spec, GcpSpec)
    nothing = GcpClient("token", httpx.MockTransport(lambda _: ok()))
    (problem,) = _short_families(
        [bought(catalog.machine("gcp", "tpu7x-standard-4t"), capacity)], spec, nothing
    )
    assert (problem.path, problem.got) == (f"quota: {asked}", "8 are needed")


def test_a_machine_whose_quota_is_unknown_is_reported(stack: Stack) -> None:
    spec = stack.target
    assert isinstance(spec, GcpSpec)
    newer = replace(catalog.machine("gcp", "n4-standard-16"), name="n9-standard-16")
    (problem,) = _unknown([bought(catalog.machine("gcp", "n4-standard-16")), _of(newer)], spec)
    assert problem.path == "quota: n9-standard-16"
    assert "does not have its quota" in problem.got


def _of(machine: Machine) -> GkePool:
    return replace(bought(catalog.machine("gcp", "n4-standard-16")), machine=machine)
