"""A job whose nodes fail repeatedly (in `make soak`)."""

import random

import pytest

from tests.e2e.stack import LocalStack, TrainingRun, job, overrides

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

SEED = 20261121
STEPS = 900
"""Enough that the job still runs at each failure; each attempt takes some twenty steps before it."""
LONG = overrides(steps=STEPS, pace_seconds=0.05)
SILENT, NOTICED = ["--no-notice"], ["--notice", "5"]


@pytest.fixture(scope="module")
def steady(stack: LocalStack) -> TrainingRun:
    """A run of the same length without failures."""
    with stack.declared(job("steady"), LONG):
        stack.trainyard("run", str(stack.job_file))
    return stack.run_of("steady")


@pytest.mark.parametrize(
    ("name", "options", "failures"),
    [
        ("harried", [SILENT, NOTICED], 12),
        ("bereft", [SILENT], 7),  # more than a job's restarts for its own failures
    ],
)
def test_a_job_whose_nodes_fail_again_and_again_ends_with_the_same_weights(
    stack: LocalStack, steady: TrainingRun, name: str, options: list[list[str]], failures: int
) -> None:
    run, chance = stack.run_of(name), random.Random(SEED)
    with stack.declared(job(name), LONG):
        submitted = stack.start("run", str(stack.job_file))
        for failure in range(failures):
            goal = run.step + chance.randint(5, 35)
            submitted.wait_for(
                lambda goal=goal, failure=failure: len(run.nodes) == failure + 1 and run.step >= goal,  # type: ignore[misc]
                f"step {goal} of attempt {failure + 1} (seed {SEED})",
            )
            node = chance.choice(run.nodes[-1])
            stack.trainyard("local", "preempt", node, *chance.choice(options))
            stack.trainyard("local", "preempt", node, "--return")
        submitted.end(0)
    assert len(run.nodes) == failures + 1
    run.assert_no_checkpointed_step_was_lost()
    assert run.sha256 == steady.sha256
    assert stack.counted_restarts(name) == 0
    assert stack.trainyard("status").out.count(" ready ") == 5
