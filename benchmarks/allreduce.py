"""Benchmark: time of an all-reduce between two pods on two nodes of the local stack, with the team's
NetworkPolicy and without it.

The same pods are measured in both arms.
"""

from __future__ import annotations

import json
import subprocess
import time
from functools import partial

from benchmarks.arena import Arena, arena
from benchmarks.figures import Figure, Repeats, in_both_orders
from tests.e2e.manifests import NAMESPACE, QUEUE, Manifest, container, pod_spec

JOB, NUM_RANKS = "ranks", 2
"""Name of the job, and its number of ranks: each runs on a separate node with one accelerator."""
ROUNDS = 14
WHERE = f"--namespace={NAMESPACE}"
SETTLE_SECONDS = 2.0
"""Seconds until a created or deleted policy takes effect on the nodes."""
RANK = """
import statistics, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
data, taken = torch.ones(8 * 2**20), []
for _ in range(12):
    dist.barrier()
    start = time.perf_counter()
    dist.all_reduce(data)
    taken.append(time.perf_counter() - start)
print(1000 * statistics.median(taken[2:]), flush=True)
dist.barrier()
dist.destroy_process_group()
"""
"""Program of a rank: all-reduces of 32 MiB each, of which the first two warm up."""


def measure() -> list[Figure]:
    """Bring the cluster up, and run both arms, alternating."""
    with arena() as bench:
        bench.trainyard("up")
        found = json.loads(bench.kubectl(WHERE, "get", "networkpolicy", "team", "-o", "json"))
        about = {key: found["metadata"][key] for key in ("name", "namespace", "labels")}
        policy = json.dumps({**found, "metadata": about})
        runtime = json.loads(bench.kubectl(WHERE, "get", "clustertrainingruntime", "torch-tcp", "-o", "json"))
        [job] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        [node] = job["template"]["spec"]["template"]["spec"]["containers"]
        bench.kubectl(WHERE, "apply", "-f", "-", given=json.dumps(_job(node["image"])))
        ready = (f"--for=jsonpath={{.status.ready}}={NUM_RANKS}", "--timeout=180s")
        bench.kubectl(WHERE, "wait", f"job/{JOB}", *ready)
        arms = {name: partial(_milliseconds, bench, name) for name in (policy, "")}
        arms[policy]()
        taken = in_both_orders(arms, ROUNDS)
    ours, bare = Repeats("under its policy", "ms", taken[policy]), Repeats("no policy", "ms", taken[""])
    return [Figure("all-reduce of 32 MiB between two pods of a team", ours, at_most=1 / 0.97, peer=bare)]


def _job(image: str) -> Manifest:
    pod = {**pod_spec(container(image, ["sleep", "infinity"], gpu=True)), "terminationGracePeriodSeconds": 1}
    about = {"name": JOB, "namespace": NAMESPACE, "labels": {"kueue.x-k8s.io/queue-name": QUEUE}}
    spec = {"parallelism": NUM_RANKS, "completions": NUM_RANKS, "suspend": True, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": spec}


def _milliseconds(bench: Arena, policy: str) -> float:
    """Return the median of an all-reduce, as rank 0 sees it."""
    if policy:
        bench.kubectl(WHERE, "apply", "-f", "-", given=policy)
    else:
        bench.kubectl(WHERE, "delete", "networkpolicy", "team", "--ignore-not-found")
    time.sleep(SETTLE_SECONDS)
    pods = json.loads(bench.kubectl(WHERE, "get", "pods", "-l", f"job-name={JOB}", "-o", "json"))["items"]
    assert len({pod["spec"]["nodeName"] for pod in pods}) == NUM_RANKS, "ranks of one node"
    host = pods[0]["status"]["podIP"]
    ranks = [_rank(bench, pod["metadata"]["name"], rank, host) for rank, pod in enumerate(pods)]
    outputs = [each.communicate(timeout=120)[0] for each in ranks]
    assert not any(each.returncode for each in ranks), outputs
    return float(outputs[0])


def _rank(bench: Arena, pod: str, rank: int, host: str) -> subprocess.Popen[str]:
    given = {"MASTER_ADDR": host, "MASTER_PORT": 29500, "RANK": rank, "WORLD_SIZE": NUM_RANKS}
    variables = [f"{name}={value}" for name, value in given.items()]
    command = [*bench.kubectl_command, WHERE, "exec", pod, "--", "env", *variables, "python3", "-c", RANK]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE)
