"""Names, labels, annotations and paths that packages share, and functions that cut names to limits."""

import hashlib

MAX_LABEL = 63
"""Maximum length of a DNS label and of a label value (RFC 1123)."""

POOL_LABEL = "trainyard.dev/pool"
CAPACITY_LABEL = "trainyard.dev/capacity"
ACCELERATOR_LABEL = "trainyard.dev/accelerator"
SIMULATED_LABEL = "trainyard.dev/simulated"
DATASET_LABEL = "trainyard.dev/dataset"
TEAM_LABEL = "trainyard.dev/team"
"""Label of a team's namespace with the team's name; admission policies select namespaces by this label."""
OWNER_ANNOTATION = "trainyard.dev/owner"
"""Annotation of every object of a stack, with the stack as PROJECT/STACK: an object without it is others'."""
USABLE_KINDS = (
    "ClusterTrainingRuntime",
    "ResourceFlavor",
    "StorageClass",
    "Topology",
    "WorkloadPriorityClass",
)
"""Kinds of objects that a stack can use though others have made them: it only reads them."""
FABRIC_LABEL = "trainyard.dev/fabric"
LEAF_LABEL = "trainyard.dev/leaf"
SPINE_LABEL = "trainyard.dev/spine"
TRAINING_IMAGE_LABEL = "trainyard.dev/training-image"
HOSTNAME_LABEL = "kubernetes.io/hostname"
CLIQUE_LABEL = "nvidia.com/gpu.clique"
"""NVIDIA's node label of an NVLink domain: nodes in one domain have the same value."""
ZONE_LABEL = "topology.kubernetes.io/zone"
REGION_LABEL = "topology.kubernetes.io/region"
SPOT_TAINT = "trainyard.dev/spot"
GRACE_ANNOTATION = "trainyard.dev/grace-seconds"
"""Annotation of a job's pods with their `terminationGracePeriodSeconds`, for their processes to read."""
NOTICE_ANNOTATION = "trainyard.dev/notice-seconds"
"""Annotation of a job's pods with the shortest preemption notice of the spot pools that they may run on."""
CHECKPOINT_ANNOTATION = "trainyard.dev/checkpoint-seconds"
"""Annotation of a job with the time that its checkpoint takes."""
DEVICE_VARIABLES = (
    "AMD_VISIBLE_DEVICES",
    "NVIDIA_IMEX_CHANNELS",
    "NVIDIA_MOFED",
    "NVIDIA_NVSWITCH",
    "NVIDIA_VISIBLE_DEVICES",
)
"""Environment variables by which the GPUs' container toolkits give a container accelerators, the NICs of a
fabric, NVLink switches or channels of another job's NVLink domain, whatever its pod requests
(nvidia-container-toolkit, internal/modifier/gated.go). Jobs may set none of them."""
SPOT_WAIVER = "trainyard.dev/spot-waiver"
"""Tag or label with the reason for buying spot in one market."""

OPERATOR_NAMESPACES = ("jobset-system", "kubeflow", "kubeflow-system", "kueue-system", "mpi-operator")
"""Namespaces of the controllers that create and change parts of a job, with upstream's names."""
ADMISSION_NAMESPACE = "trainyard-admission"
STORAGE_NAMESPACE = "trainyard-storage"
LOGS_NAMESPACE = "trainyard-logs"
LOGS_CLAIM = "logs"
OBJECT_STORE_ACCOUNTS = "object-store-accounts"
CHECKPOINTS_CLAIM = "checkpoints"
CHECKPOINTS_MOUNT = "/mnt/checkpoints"
BUCKET_CLAIM = "bucket"
DATASETS_CLAIM = "datasets"
DATASETS_MOUNT = "/mnt/datasets"
TRAINING_ENV = "training-env"
"""Volume of pods with the training environment; its claim's name also has a digest of the environment."""
TRAINING_ENV_MOUNT = "/opt/trainyard/env"
CODE_STORE = f"{CHECKPOINTS_MOUNT}/.trainyard/code"
"""Folder in a team's volume with packed code, by digest; the leading dot avoids clashes with names of
jobs."""
PACKAGE_STORE = f"{CHECKPOINTS_MOUNT}/.trainyard/packages"
"""Folder in a team's volume with the packages of `trainyard run --with`, unpacked, by digest."""
HUGGING_FACE_CACHE = f"{CHECKPOINTS_MOUNT}/.cache/huggingface"
"""Folder of the Hugging Face cache, which all jobs of a team share."""
JOB_VOLUME, JOB_MOUNT = "job", "/mnt/job"
"""In-memory volume of each pod of a job, and its mount path."""
JOB_VOLUME_GIB = 1
"""Size of the in-memory volume: holds the packed code and the unpacked files together."""
CODE_FOLDER = f"{JOB_MOUNT}/code"
"""Folder into which a job's code is unpacked read-only, and in which its command starts."""
CODE_VARIABLE = "TRAINYARD_CODE"
"""Environment variable with the digest of a job's code, for the unpacking program and the ranks."""
PACKAGES_VARIABLE = "TRAINYARD_PACKAGES"
"""Environment variable with the folder of a job's packages."""
ACCELERATOR_VARIABLE = "TRAINYARD_ACCELERATOR"
"""Environment variable with the resource by which a pod asks for real accelerators: ranks refuse to train
without them."""
ACCELERATORS_VARIABLE = "TRAINYARD_ACCELERATORS_PER_NODE"
"""Environment variable with the number of accelerators that each pod of a job asks for."""
UPLOADS = "uploads"
"""Name of the Deployment that receives a team's code."""
OFFER_ANNOTATION = "trainyard.dev/offer"
"""Annotation of a ResourceFlavor that describes its nodes to team members, who cannot list nodes."""
DATASETS_ANNOTATION = "trainyard.dev/datasets"
"""Annotation of a training runtime with the datasets of its pods: name → path and digest."""
OBJECT_STORE = "object-store"
OBJECT_STORE_PORT = 7070
AUTOSCALER = "cluster-autoscaler"
TOPOLOGY = "fabric"
RACK_TOPOLOGY = "racks"
"""Name of the topology with NVLink domains as a level; nodes without a domain's label run no job of it."""
HOST_TOPOLOGY = "hosts"
"""Name of the topology for pools without accelerators, whose nodes have no labels of network levels."""
ANY_FABRIC = "distributed"
"""Fabric part of a runtime's name that means the stack's first fabric, as in `torch-distributed` of
Kubeflow."""


def node(pool: str, index: int) -> str:
    """Name of a pool's node: `spot-0`."""
    return f"{pool}-{index}"


CHECKPOINTS = "checkpoints/"
"""Folder of the teams' folders, in the shared filesystem and in the object store."""


def team_folder(team: str) -> str:
    """Folder of a team, in the shared filesystem and in the object store."""
    return f"{CHECKPOINTS}{team}"


def team_namespace(team: str) -> str:
    """Namespace of a team: `team-research`."""
    return f"team-{team}"


def team_of(namespace: str) -> str:
    """Return the team of a team's namespace; any other namespace unchanged."""
    return namespace.removeprefix(team_namespace(""))


def logs_reader(team: str) -> str:
    """Name of the pod, in LOGS_NAMESPACE, by which members of a team read its logs: `team-research-0`."""
    return f"{team_namespace(team)}-0"


def runtime(framework: str, fabric: str) -> str:
    """Name of a training runtime: `torch-tcp`."""
    return f"{framework}-{fabric}"


def training_env_claim(folder: str) -> str:
    """Name of the claims to a training environment: jobs keep theirs when the stack gets another one."""
    return f"{TRAINING_ENV}-{hashlib.sha256(folder.encode()).hexdigest()[:8]}"


def fit(name: str, limit: int = MAX_LABEL) -> str:
    """Shorten a name that is too long, keeping it deterministic and distinct by a digest of the whole."""
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: limit - 9].rstrip('-')}-{digest}"


GENERATED_SUFFIX = 8
"""Suffix that the engine adds to a logical name for a generated physical name: `-` and seven random
digits."""


def fit_generated(name: str, limit: int) -> str:
    """Fit a logical name so that the physical name that the engine makes of it is within a cloud's limit."""
    return fit(name, limit - GENERATED_SUFFIX)


_MAX_AGENT_POOL = 12


def agent_pool(pool: str) -> str:
    """Name of a pool in AKS, which takes twelve small letters and digits: `on-demand` is `ondemand`."""
    plain = pool.replace("-", "")
    if len(plain) <= _MAX_AGENT_POOL:
        return plain
    return plain[:6] + hashlib.sha256(pool.encode()).hexdigest()[:6]
