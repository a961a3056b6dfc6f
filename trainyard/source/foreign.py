"""Recognises files of other launchers and of other kinds of Kubernetes, and names the way that is meant: the
same job as a command of `trainyard run`, or a line of kubectl.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

import catalog
from infra.errors import Problem

_LAUNCHERS: Mapping[str, Sequence[set[str]]] = {
    "SkyPilot": ({"run", "setup"}, {"run", "resources"}, {"run", "num_nodes"}),
    "dstack": ({"type", "commands"},),
    "Docker Compose": ({"services"},),
    "Determined": ({"entrypoint", "searcher"},),
}
"""Launcher → sets of keys, of which a file of it has one."""
_TRAIN_JOB = "trainer.kubeflow.org/v1alpha1 TrainJob"
_QUEUED = {"batch/v1 Job", "jobset.x-k8s.io/v1alpha2 JobSet", "kubeflow.org/v2beta1 MPIJob", _TRAIN_JOB}
"""Kinds of jobs that a team's members submit with kubectl."""
_OTHER = "{0} is no job that members of a team submit: write a TrainJob, JobSet, MPIJob or Job"
_OPERATOR = "{0} needs operators.training_operator, which your platform team switches on"
_WAYS: Mapping[str, str] = {
    "ConfigMap": "leave the ConfigMap out: a script is sent with the folder's code",
    "PersistentVolumeClaim": "leave the claim out: /mnt/checkpoints is the team's volume in every job",
    "Secret": "leave the Secret out: trainyard team secret set NAME, and --secret NAME",
    "RayJob": "RayJob needs KubeRay and its account in admission.controllers, which your platform team adds",
    **dict.fromkeys(("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob"), _OPERATOR),
}
"""Kind → what to do in its place."""
_TORCHRUN = re.compile(r"(?:torchrun|python3? -m torch\.distributed\.(?:run|launch))\b(?:\\\n|[^\n;&|])*")


def foreign(path: Path) -> Problem | None:
    """Return what a file is, where it is neither a job.yaml nor one TrainJob, and the way that is meant."""
    try:
        documents = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None  # reported with its position by whoever reads it
    found = [each for each in documents if isinstance(each, dict)]
    made = [each for each in found if {"apiVersion", "kind"} <= each.keys()]
    kinds = {str(each["kind"]): f"{each['apiVersion']} {each['kind']}" for each in made}
    what = f"{', '.join(kinds)} of Kubernetes" if kinds else "several documents" if documents[1:] else ""
    for name, sets in _LAUNCHERS.items():
        if not kinds and found and any(keys <= found[0].keys() for keys in sets):
            what = f"a file of {name}"
    if not what or (not documents[1:] and list(kinds.values()) == [_TRAIN_JOB]):
        return None
    ways = [_WAYS.get(kind, _OTHER).format(kind) for kind, whole in kinds.items() if whole not in _QUEUED]
    if kinds and not ways:
        ways.append(f"kubectl create -f {shlex.quote(str(path))} -n NAMESPACE-OF-YOUR-TEAM")
    if what != "several documents" and (same := next(filter(None, map(_same, found)), "")):
        for file in (name for each in made if each["kind"] == "ConfigMap" for name in each.get("data") or ()):
            same = re.sub(rf"\S*/{re.escape(file)}\b", file, same)
        ways.append(f"the same job: {same}")
    return Problem(str(path), what, "a job.yaml, or one TrainJob", "; ".join(ways) or "one job per file")


def _same(data: Mapping[str, Any]) -> str:
    """Return the command of `trainyard run` for a job of another form; empty where it has none of its own."""
    if str(data.get("kind")).startswith(("MPI", "Ray")):  # which start their ranks themselves
        return ""
    try:
        pods = list(_pods(data, 1))
        command = next(filter(None, (_command(pod) for _, pod in pods)), "")
        sizes = [(count, count * _gpus(pod)) for count, pod in pods]
    except (
        AttributeError,
        KeyError,
        StopIteration,
        TypeError,
        ValueError,
    ):  # not of the form that its kind has
        return ""
    if not command:
        return ""
    nodes, gpus = (sum(each) for each in zip(*([size for size in sizes if size[1]] or sizes), strict=True))
    image = next((f" --image {pod['image']}" for _, pod in pods if pod.get("image")), "")
    return f"trainyard run --nodes {nodes}{f' --gpus {gpus}' if gpus else ''}{image} -- {command}"


def _pods(data: Any, count: int) -> Iterator[tuple[int, Mapping[str, Any]]]:  # noqa: ANN401 -- of any file
    """Yield each container that a job starts, with the number of its pods."""
    if isinstance(data, list):
        for each in data:
            yield from _pods(each, count)
    if not isinstance(data, dict):
        return
    if text := data.get("run") or data.get("entrypoint") or "\n".join(data.get("commands") or ()):
        asked = data.get("resources") or {}
        wanted = str(asked.get("accelerators") or asked.get("gpu") or "")
        number = re.search(r"(?:^|:\s*)(\d+)\W*$", wanted)
        limits = {"nvidia.com/gpu": number[1] if number else 1} if wanted else {}
        nodes = int(data.get("num_nodes") or data.get("nodes") or 1)
        yield nodes, {"command": ["sh", "-c", text], "resources": {"limits": limits}}
    if trainer := data.get("trainer"):
        yield int(trainer.get("numNodes") or 1), {**trainer, "resources": trainer.get("resourcesPerNode")}
    count *= int(data.get("parallelism") or data.get("replicas") or 1)
    for container in (data.get("containers") or ())[:1]:
        if "image" in container:  # else it changes the container of a template
            yield count, container
    for each in data.values():
        yield from _pods(each, count)


def _gpus(container: Mapping[str, Any]) -> int:
    limits = (container.get("resources") or {}).get("limits") or {}
    return sum(int(limits.get(kind, 0)) for kind in catalog.accelerator_resources())


def _command(container: Mapping[str, Any]) -> str:
    """Return a container's own command; one that starts ranks by torchrun becomes that of a rank."""
    parts = ("command", "args") if container.get("command") else ()
    words = [str(each) for part in parts for each in container.get(part) or ()]
    text = words[-1] if len(words) > 2 and re.fullmatch(r"-\w*c", words[-2]) else shlex.join(words)
    if ranks := _TORCHRUN.search(text):
        rest = shlex.split(ranks[0].replace("\\\n", " "))
        words = ["python", *rest[next(index for index, word in enumerate(rest) if word.endswith(".py")) :]]
    return shlex.join(words)
