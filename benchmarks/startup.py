"""Benchmark: time to the first optimizer step with no cluster and warm caches, `trainyard up` against a
script of helm and kubectl.

Both arms start the same embedded cluster, install the same charts with the same values, and submit the
same job. The peer's script waits only where it must.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from benchmarks.arena import JOB_FILE, Arena, arena, quiet
from benchmarks.figures import Figure, Repeats, alternating
from infra.common.artifacts import Artifacts
from local.cluster.cluster import EmbeddedCluster
from local.cluster.config import ClusterConfig
from tests.infra.plan import Plan, plan
from trainyard.jobs.manifest import manifest

CHARTS = {"jobset": "jobset-system", "trainer": "kubeflow-system", "kueue": "kueue-system"}
WEBHOOK_GROUPS = ("kueue.x-k8s.io", "trainer.kubeflow.org")
"""API groups whose objects a webhook validates, so that its controller must be ready first."""


def measure() -> list[Figure]:
    """Run each arm in turn, with no cluster at its start and warm caches."""
    with arena() as bench:
        bench.session.toolchain.ensure()
    ours, peer = alternating(_ours, _bare)
    samples = Repeats("trainyard up", "s", ours)
    return [
        Figure("`up` → first optimizer step", samples, at_most=120),
        Figure("`up` → first optimizer step", samples, 1.25, Repeats("helm and kubectl", "s", peer)),
    ]


def _ours() -> float:
    with arena() as bench:
        started = time.time()
        command = [str(bench.session.paths.venv / "bin" / "trainyard"), "up", f"--job={JOB_FILE}"]
        with (bench.state / "log").open("ab") as log:
            running = subprocess.Popen(command, env=bench.environment, stdout=log, stderr=log)
        try:
            return bench.first_step_after(started)
        finally:
            running.terminate()
            running.wait()


def _bare() -> float:
    with arena() as bench, tempfile.TemporaryDirectory() as rendered:
        recorded = plan(bench.session.stack, Path(rendered))
        started = time.time()
        _start_cluster(bench, recorded)
        _install(bench, recorded)
        return bench.first_step_after(started)


def _start_cluster(bench: Arena, recorded: Plan) -> None:
    inputs = dict(next(iter(recorded.named("EmbeddedCluster").values())))
    inputs["dataDir"] = str(bench.session.paths.cluster_data("local"))
    EmbeddedCluster(
        ClusterConfig.parse(inputs),
        paths=bench.session.paths,
        toolchain=bench.session.toolchain,
        progress=quiet(),
    ).up()


def _install(bench: Arena, recorded: Plan) -> None:
    artifacts = Artifacts.from_environment()
    kubectl = _Tool("kubectl", bench.session.kubeconfig)
    helm = _Tool("helm", bench.session.kubeconfig)
    objects = [_object(each, bench, artifacts) for each in _own_objects(recorded)]
    late = [each for each in objects if each["apiVersion"].startswith(WEBHOOK_GROUPS)]
    kubectl("apply", "--server-side", "-f", str(artifacts.chart("mpi-operator")))
    early = sorted(
        (each for each in objects if each not in late), key=lambda each: each["kind"] != "Namespace"
    )
    kubectl("apply", "-f", "-", stdin=_documents(early))
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda name: _helm_install(helm, name, recorded, artifacts), CHARTS))
    kubectl("wait", "--for=condition=Available", "deployment", "--all", "-A", "--timeout=300s")
    _until_accepted(kubectl, _documents(late))
    _until_accepted(kubectl, json.dumps(manifest(bench.job, "run-001")))


def _helm_install(helm: _Tool, name: str, recorded: Plan, artifacts: Artifacts) -> None:
    values = next(
        each.inputs["values"]
        for each in recorded.resources
        if each.type == f"trainyard:platform:{name.capitalize()}"
    )
    chart = str(artifacts.chart(name))
    helm("install", name, chart, "--namespace", CHARTS[name], "--values", "-", stdin=json.dumps(values))


def _own_objects(recorded: Plan) -> list[Any]:
    """Objects that no chart brings: namespaces, storage, object store, queues, runtimes."""
    objects = [each.inputs for each in recorded.resources if each.type.startswith("kubernetes:")]
    return [
        each
        for each in objects
        if each["kind"] in OWN_KINDS
        or each["apiVersion"].startswith(WEBHOOK_GROUPS)
        or each["metadata"].get("namespace", "").startswith(("team-", "trainyard-"))
    ]


def _object(inputs: Any, bench: Arena, artifacts: Artifacts) -> dict[str, Any]:  # noqa: ANN401
    """Put this host's paths and image where the plan has its fakes."""
    from tests.infra.plan import IMAGE, TRAINING_ENV

    text = json.dumps(inputs)
    text = text.replace(IMAGE, artifacts.training_image).replace(
        str(TRAINING_ENV), str(artifacts.training_env)
    )
    text = text.replace("/var/lib/trainyard", str(bench.state))
    found: dict[str, Any] = json.loads(text)
    return found


def _documents(objects: list[dict[str, Any]]) -> str:
    return yaml.safe_dump_all(objects)


def _until_accepted(kubectl: _Tool, text: str) -> None:
    """Apply until the webhooks answer."""
    deadline = time.monotonic() + 120
    while True:
        try:
            kubectl("apply", "-f", "-", stdin=text)
        except ToolError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)
        else:
            return


OWN_KINDS = {"Namespace", "StorageClass", "PersistentVolume"}
"""Cluster-wide kinds that only our platform creates; the charts create the others."""


class ToolError(RuntimeError):
    """helm or kubectl failed, with its output."""


class _Tool:
    """A program that the peer's script calls: helm or kubectl."""

    def __init__(self, program: str, kubeconfig: Path) -> None:
        self._program = program
        self._environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}

    def __call__(self, *arguments: str, stdin: str = "") -> None:
        path = Path(__file__).parent.parent / ".trainyard" / "bin" / self._program
        command = [str(path), *arguments]
        done = subprocess.run(
            command, env=self._environment, input=stdin, text=True, check=False, capture_output=True
        )
        if done.returncode:
            raise ToolError(f"{' '.join(command)}: {done.stderr}")
