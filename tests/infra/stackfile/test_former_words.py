"""A file in words that others have replaced is refused at once, each with its new word."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.errors import InputError
from infra.stackfile import parse, parse_fleet, parse_job
from tests.patches import changed

STACKS = Path(__file__).parents[3] / "stacks"


def shipped(name: str, key: str = "trainyard:stack") -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((STACKS / f"Pulumi.{name}.yaml").read_text())["config"][key]
    return found


JOB = {"name": "a", "team": "b", "command": ["python", "train.py"]}
KEYS = {
    "pools[0].num_nodes": (4, "nodes"),
    "pools[0].min_nodes": (0, "nodes"),
    "pools[0].max_run_hours": (24, "max_run"),
    "operators.legacy_v1": (True, "training_operator"),
    "operators.legacy_v1_kinds": (["TFJob"], "training_operator"),
    "operators.pods_ready_minutes": (5, "pods_ready"),
    "operators.pods_recovery_minutes": (5, "pods_recovery"),
    "storage.checkpoints.size_gib": (20, "size"),
    "storage.object_store.size_gib": (20, "size"),
    "teams[0].limits.memory_gib": (64, "memory"),
    "teams[0].limits.scratch_gib": (64, "scratch"),
    "teams[0].limits.claimed_gib": (64, "claimed"),
    "grace_seconds": ({"torch-tcp": 60}, "grace"),
    "provider": ({"kind": "local"}, "target"),
}
JOB_KEYS = {
    "num_nodes": (2, "nodes"),
    "accelerators_per_node": (8, "gpus"),
    "processes_per_node": (8, "ranks_per_node"),
    "memory_gib": (64, "memory"),
    "shared_memory_gib": (16, "shared_memory"),
    "environment": ({"A": "1"}, "env"),
    "time_limit_minutes": (60, "time_limit"),
    "hold_on_failure_minutes": (30, "hold_on_failure"),
    "grace_seconds": (60, "grace"),
    "dataset": ("pile", "datasets"),
}
WORDS = {
    "config": ("digits", "write it among args: [--config, digits]"),
    "overrides": (
        {"steps": 300, "resume": True},
        "write it among args: [--set, steps=300, --set, resume=true]",
    ),
    "module": ("our.train", "write command: [python, -m, our.train]"),
}
"""Keys of a job that words of its program have replaced."""
VALUES = {
    "pools[0].capacity": ("system", "role: system"),
    "pools[1].fabric": ("none", "tcp"),
    "pools[1].provisioning": ("flex-start", "node-by-node"),
    "operators.kueue": ("present", "existing"),
}


def refused(read: Any, data: Any) -> dict[str, str]:
    with pytest.raises(InputError) as caught:
        read(data)
    return {problem.path: problem.fix for problem in caught.value.problems}


@pytest.mark.parametrize(("path", "word"), [*KEYS.items(), *VALUES.items()])
def test_a_former_key_or_value_of_a_stack_is_refused_with_the_new_one(
    path: str, word: tuple[Any, str]
) -> None:
    value, new = word
    fix = refused(parse, changed(shipped("local"), {path: value}))[path]
    assert new in fix if path in VALUES else fix == f"did you mean {new!r}?"


@pytest.mark.parametrize(("path", "word"), [*JOB_KEYS.items(), *WORDS.items()])
def test_a_former_key_of_a_job_is_refused_with_the_new_one_or_its_words(
    path: str, word: tuple[Any, str]
) -> None:
    value, new = word
    fix = new if path in WORDS else f"did you mean {new!r}?"
    assert refused(parse_job, JOB | {path: value}) == {path: fix}


def test_a_job_in_a_stack_file_is_refused_with_the_way_to_run_it() -> None:
    fix = "write it into a file of its own, job.yaml, and pass that: trainyard up --job job.yaml"
    assert refused(parse, changed(shipped("local"), {"job": JOB})) == {"job": fix}


def test_a_former_value_says_nothing_of_a_key_that_never_had_it() -> None:
    none = refused(parse, changed(shipped("aws"), {"pools[1].placement": "none", "operators.kueue": "any"}))
    assert none["pools[1].placement"] == none["operators.kueue"] == "choose one of these"


def test_sizes_and_times_without_a_unit_are_refused_with_one() -> None:
    assert refused(parse_job, JOB | {"memory": 64, "time_limit": 90}) == {
        "memory": "write its unit, such as 64Gi",
        "time_limit": "write its unit, such as 90m",
    }


def test_a_former_runtime_fabric_and_part_of_a_fleet_have_their_new_names() -> None:
    local = parse(shipped("local"))
    job = JOB | {"team": "research", "runtime": "torch-none"}
    assert refused(partial(parse_job, stack=local), job) == {"runtime": "did you mean 'torch-tcp'?"}
    needs = refused(parse_job, JOB | {"needs": {"fabric": "any"}})
    assert needs == {"needs.fabric": "write rdma"}
    fleet = shipped("hybrid", "trainyard:fleet")
    former = {("hub" if key == "manager" else key): value for key, value in fleet.items()}
    assert refused(parse_fleet, former) == {"hub": "did you mean 'manager'?"}
