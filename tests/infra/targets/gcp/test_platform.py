"""The platform's objects on Google Cloud: pods by fabric, installers, queues, volumes and access."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.stackfile import Stack
from infra.stackfile.job import JobSpec
from tests.infra.plan import Plan, plan
from tests.infra.targets.gcp.stacks import pool, queue_on
from trainyard.jobs.manifest import manifest

SPOT: dict[str, Any] = {"name": "spot", "capacity": "spot"}
RESERVED: dict[str, Any] = {"capacity": "reserved", "reservation": {"id": "h200"}}


@pytest.fixture(scope="module")
def mega_plan(gcp: Stack, rendered: Path) -> Plan:
    return plan(queue_on(gcp, pool("a3-megagpu-8g", **SPOT), pool("a3-megagpu-8g")), rendered)


@pytest.fixture(scope="module")
def dranet_plan(gcp: Stack, rendered: Path) -> Plan:
    return plan(queue_on(gcp, pool("a3-ultragpu-8g", fabric="roce-dra", **RESERVED)), rendered)


@pytest.fixture(scope="module")
def queued_plan(gcp: Stack, rendered: Path) -> Plan:
    queued = pool("a3-ultragpu-8g", name="queued", provisioning="all-at-once")
    stack = queue_on(gcp, queued, pool("a3-ultragpu-8g", **RESERVED), release_channel="none")
    return plan(stack, rendered)


def job(found: Plan, runtime: str, index: int = 0) -> dict[str, Any]:
    spec = found.named("ClusterTrainingRuntime")[runtime]["spec"]["template"]["spec"]
    template: dict[str, Any] = spec["replicatedJobs"][index]["template"]["spec"]["template"]
    return template


def kueue(found: Plan) -> dict[str, Any]:
    config = found.named("ConfigMap")["kueue-system/kueue-manager-config"]["data"]
    settings: dict[str, Any] = yaml.safe_load(config["controller_manager_config.yaml"])
    return settings


def level(found: Plan, namespace: str) -> str:
    labels: dict[str, str] = found.named("Namespace")[namespace]["metadata"]["labels"]
    return labels["pod-security.kubernetes.io/enforce"]


def test_tcpxos_daemon_is_in_each_pod_and_an_exception_of_the_teams_that_use_it(mega_plan: Plan) -> None:
    template = job(mega_plan, "torch-tcpxo")
    daemon = template["spec"]["initContainers"][0]
    assert daemon["name"] == "tcpxo-daemon"
    assert "--num_nics=8" in daemon["command"][-1].split(), "as in Google Cloud's manifest"
    assert daemon["restartPolicy"] == "Always"
    assert set(daemon["securityContext"]["capabilities"]["add"]) == {"NET_ADMIN", "NET_BIND_SERVICE"}
    devices = yaml.safe_load(template["metadata"]["annotations"]["devices.gke.io/container.tcpxo-daemon"])
    assert {"path": "/dev/dmabuf_import_helper"} in devices
    assert level(mega_plan, "team-research") == "privileged"
    about = mega_plan.named("Namespace")["team-research"]["metadata"]["annotations"]
    assert about["trainyard.dev/pod-security-exception"].startswith(
        "tcpxo-daemon adds NET_ADMIN, NET_BIND_SERVICE (https://docs.cloud.google.com/"
    )
    (container,) = template["spec"]["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    claims = mega_plan.named("PersistentVolumeClaim")
    assert claims["team-research/host-sys"]["spec"]["accessModes"] == ["ReadWriteMany"]
    libraries = claims["team-research/host-home-kubernetes-bin-nvidia-lib64"]
    assert libraries["spec"]["accessModes"] == ["ReadOnlyMany"]


def installers(found: Plan) -> dict[str, Any]:
    daemon_sets = found.named("DaemonSet").items()
    return {name: each for name, each in daemon_sets if name != "trainyard-logs/collector"}


def test_installers_run_on_nodes_with_their_fabric(gcp_plan: Plan, mega_plan: Plan, tpu_plan: Plan) -> None:
    assert set(installers(gcp_plan)) == {"kube-system/nccl-rdma-installer", "kube-system/memory-lock"}
    assert set(installers(mega_plan)) == {"kube-system/nccl-tcpxo-installer", "kube-system/device-injector"}
    assert not installers(tpu_plan)
    for found in (gcp_plan, mega_plan):
        for daemon_set in installers(found).values():
            affinity = daemon_set["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
            (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
            (wanted,) = term["matchExpressions"]
            labels = found.named("NodePool")["training-spot"]["nodeConfig"]["labels"]
            assert labels[wanted["key"]] in wanted["values"]


def test_with_dranet_a_pod_claims_its_nics_and_kueue_does_not_count_them(dranet_plan: Plan) -> None:
    template = job(dranet_plan, "torch-roce-dra")
    assert "networking.gke.io/interfaces" not in template["metadata"]["annotations"]
    pod = template["spec"]
    (claim,) = pod["resourceClaims"]
    assert pod["containers"][0]["resources"]["claims"] == [{"name": claim["name"]}]
    asked = dranet_plan.named("ResourceClaimTemplate")[f"team-research/{claim['resourceClaimTemplateName']}"]
    (request,) = asked["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {
        "deviceClassName": "mrdma.google.com",
        "allocationMode": "ExactCount",
        "count": 8,
    }
    assert kueue(dranet_plan)["featureGates"] == {
        "ElasticJobsViaWorkloadSlices": False,
        "ReclaimablePods": False,
        "KueueDRAIntegration": False,
        "KueueDRARejectWorkloadsWhenDRADisabled": False,
    }


def test_without_claims_kueue_retains_quota_until_the_end_and_jobs_keep_their_size(gcp_plan: Plan) -> None:
    """Else a JobSet that restarts would run Jobs whose quota has been freed, and a part of a job without
    quota could continue to run."""
    assert kueue(gcp_plan)["featureGates"] == {
        "ElasticJobsViaWorkloadSlices": False,
        "ReclaimablePods": False,
    }


def test_a_job_repeats_the_claim_and_the_resource_of_its_fabric() -> None:
    def asked(runtime: str, accelerators: int) -> dict[str, Any]:
        spec = JobSpec(
            name="digits",
            team="research",
            runtime=runtime,
            nodes=2,
            gpus=accelerators,
            args=("--config", "digits"),
        )
        per_node: dict[str, Any] = manifest(spec, "run")["spec"]["trainer"]["resourcesPerNode"]
        return per_node

    assert asked("torch-roce-dra", 8)["claims"] == [{"name": "fabric"}]
    requests = {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "8"}
    assert asked("torch-roce", 8) == {"requests": requests, "limits": {"nvidia.com/gpu": "8"}}
    assert asked("torch-ici", 4)["limits"] == {"google.com/tpu": "4"}


def test_queued_nodes_are_requested_before_a_job_is_admitted(queued_plan: Plan, gcp_plan: Plan) -> None:
    (check,) = queued_plan.named("ClusterQueue")["gpu"]["spec"]["admissionChecksStrategy"]["admissionChecks"]
    assert check["onFlavors"] == ["queued"]
    admission = queued_plan.named("AdmissionCheck")[check["name"]]["spec"]
    assert admission["controllerName"] == "kueue.x-k8s.io/provisioning-request"
    config = queued_plan.named("ProvisioningRequestConfig")[admission["parameters"]["name"]]["spec"]
    assert config == {
        "provisioningClassName": "queued-provisioning.gke.io",
        "managedResources": ["nvidia.com/gpu"],
    }
    tolerated = [each["key"] for each in queued_plan.named("ResourceFlavor")["queued"]["spec"]["tolerations"]]
    assert tolerated == ["nvidia.com/gpu", "cloud.google.com/gke-queued"]
    assert "admissionChecksStrategy" not in gcp_plan.named("ClusterQueue")["gpu"]["spec"]
    assert not gcp_plan.named("AdmissionCheck")


def test_the_topology_is_gcps_where_all_nodes_have_it(gcp: Stack, gcp_plan: Plan, rendered: Path) -> None:
    def levels(found: Plan) -> list[str]:
        return [each["nodeLabel"] for each in found.named("Topology")["fabric"]["spec"]["levels"]]

    assert levels(gcp_plan)[0] == "cloud.google.com/gce-topology-block"
    plain = plan(queue_on(gcp, pool("g2-standard-8")), rendered)
    assert levels(plain) == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
