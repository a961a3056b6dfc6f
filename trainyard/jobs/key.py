"""Names a job, and the objects, labels and annotations that Kubernetes has of it."""

from dataclasses import dataclass

from infra.clients.kubernetes.api import Kind, path_of
from infra.common import names

TRAIN_JOBS: Kind = ("trainer.kubeflow.org", "v1alpha1", "trainjobs")
RUNTIMES: Kind = ("trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes")
JOB_SETS: Kind = ("jobset.x-k8s.io", "v1alpha2", "jobsets")
WORKLOADS: Kind = ("kueue.x-k8s.io", "v1beta2", "workloads")
LOCAL_QUEUES: Kind = ("kueue.x-k8s.io", "v1beta2", "localqueues")
CLUSTER_QUEUES: Kind = ("kueue.x-k8s.io", "v1beta2", "clusterqueues")
FLAVORS: Kind = ("kueue.x-k8s.io", "v1beta2", "resourceflavors")
PRIORITIES: Kind = ("kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses")
JOB_SET_NAME = "jobset.sigs.k8s.io/jobset-name"
"""Label of a job's pods with the job's name."""
QUEUE = "kueue.x-k8s.io/queue-name"
"""Label of a TrainJob with the local queue that it waits in."""
RUN, SPEC, PREEMPTIONS = "trainyard.dev/run", "trainyard.dev/spec", "trainyard.dev/losses"
"""Annotations of a TrainJob: its run, the hash of its spec, and the number of scheduled preemptions so
far."""
JOB = "trainyard.dev/job"
"""Annotation with the job's spec as JSON, from which `trainyard job rerun` starts it again."""
ORIGIN, PORTS = "trainyard.dev/origin", "trainyard.dev/ports"
"""Annotations of a TrainJob: its origin (see `manifest.Origin`), and its ports as `name=number,…`."""


@dataclass(frozen=True)
class JobKey:
    """A job's name in its team's namespace."""

    team: str
    name: str

    @property
    def namespace(self) -> str:
        return names.team_namespace(self.team)

    @property
    def path(self) -> str:
        """Path of the TrainJob at the API server."""
        return path_of(TRAIN_JOBS, self.namespace, self.name)
