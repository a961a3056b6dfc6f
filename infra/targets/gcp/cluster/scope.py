"""`Scope`: what all parts of the Google Cloud target share: names, labels, resource options, project, region,
address ranges, and IAM members of services and pods.
"""

from dataclasses import dataclass

from infra.common.subnets import GkeRanges, gke_ranges
from infra.targets.gcp.stackfile.target import GcpSpec
from infra.targets.scope import CloudScope

SERVICE_AGENTS = {
    "container": "container-engine-robot",
    "compute": "compute-system",
    "storage": "gs-project-accounts",
    "filestore": "cloud-filer",
    "lustre": "gcp-sa-lustre",
}
"""Service → domain of the service agent that uses our keys; a project has each one after the service's
first use."""


@dataclass(frozen=True)
class Scope(CloudScope):
    """The scope of a stack on Google Cloud."""

    spec: GcpSpec

    @property
    def region(self) -> str:
        """Given to every resource that takes one."""
        return self.spec.region

    @property
    def project(self) -> str:
        """Given to every resource that takes one."""
        return self.spec.project

    @property
    def labels(self) -> dict[str, str]:
        """Labels of every resource; nodes that GKE creates do not get the provider's."""
        return labels_of(self.name, self.spec)

    @property
    def ranges(self) -> GkeRanges:
        """Address ranges of the stack's network."""
        return gke_ranges(self.spec.network.cidr)

    @property
    def workload_pool(self) -> str:
        """Workload identity pool of the project."""
        return f"{self.project}.svc.id.goog"

    def service_agent(self, service: str) -> str:
        """IAM member by which a Google Cloud service acts in the project (its service agent)."""
        domain = SERVICE_AGENTS[service]
        return f"serviceAccount:service-{self.spec.project_number}@{domain}.iam.gserviceaccount.com"

    def pods_of(self, namespace: str, service_account: str) -> str:
        """IAM member that the pods of a Kubernetes service account are."""
        pool = f"projects/{self.spec.project_number}/locations/global/workloadIdentityPools"
        subject = f"ns/{namespace}/sa/{service_account}"
        return f"principal://iam.googleapis.com/{pool}/{self.workload_pool}/subject/{subject}"


def labels_of(name: str, spec: GcpSpec) -> dict[str, str]:
    """Labels of every resource of a stack."""
    return {"trainyard-stack": name, **spec.labels}
