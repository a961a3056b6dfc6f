"""What takes long: a job that loses a node again and again."""

from __future__ import annotations

import random

import pytest

from tests.e2e.stack import LocalStack, TrainingRun, job, overrides

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

SEED = 20261121
STEPS = 900
"""Enough that the job is at work at each loss; each attempt does some twenty steps before it."""
LONG = overrides(steps=STEPS, pace_seconds=0.05)
SILENT, NOTICED = ["--no-notice"], ["--notice", "5"]


@pytest.fixture(scope="module")
def steady(stack: LocalStack) -> TrainingRun:
    """A run as long, to which nothing happened."""
    with stack.declared(job("steady"), LONG):
        stack.trainyard("submit")
    return stack.run_of("steady")


@pytest.mark.parametrize(
    ("name", "words", "losses"),
    [
        ("harried", [SILENT, NOTICED], 12),
        ("bereft", [SILENT], 7),  # more than the restarts that a job has for its faults
    ],
)
def test_a_job_whose_nodes_fail_again_and_again_ends_with_the_same_weights(
    stack: LocalStack, steady: TrainingRun, name: str, words: list[list[str]], losses: int
) -> None:
    run, chance = stack.run_of(name), random.Random(SEED)
    with stack.declared(job(name), LONG):
        submitted = stack.start("submit")
        for loss in range(losses):
            goal = run.step + chance.randint(5, 35)
            submitted.wait_for(
                lambda goal=goal, loss=loss: len(run.nodes) == loss + 1 and run.step >= goal,  # type: ignore[misc]
                f"step {goal} of attempt {loss + 1} (seed {SEED})",
            )
            node = chance.choice(run.nodes[-1])
            stack.trainyard("preempt", node, *chance.choice(words))
            stack.trainyard("preempt", node, "--return")
        submitted.end(0)
    assert len(run.nodes) == losses + 1
    run.assert_no_checkpointed_step_was_lost()
    assert run.sha256 == steady.sha256
    assert stack.counted_restarts(name) == 0
    assert stack.trainyard("status").out.count(" ready ") == 5
