"""What takes long: a job that loses a node again and again."""

from __future__ import annotations

import random

import pytest

from tests.e2e.stack import Declaration, Edit, LocalStack, job

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

SEED = 20261121
LOSSES = 12
STEPS = 900
"""Enough that the job is at work at each loss; each attempt does some twenty steps before it."""


def long_job(name: str) -> Edit:
    def edit(declaration: Declaration) -> None:
        job(name)(declaration)
        declaration["job"]["overrides"] |= {"steps": STEPS, "pace_seconds": 0.05}

    return edit


def test_a_job_that_loses_a_node_again_and_again_ends_with_the_same_weights(stack: LocalStack) -> None:
    with stack.declared(long_job("steady")):
        stack.trainyard("submit")
    run, chance = stack.run_of("harried"), random.Random(SEED)
    with stack.declared(long_job("harried")):
        submitted = stack.start("submit")
        for loss in range(LOSSES):
            goal = run.step + chance.randint(5, 35)
            submitted.wait_for(
                lambda goal=goal, loss=loss: len(run.nodes) == loss + 1 and run.step >= goal,  # type: ignore[misc]
                f"step {goal} of attempt {loss + 1} (seed {SEED})",
            )
            node = chance.choice(run.nodes[-1])
            word = chance.choice([["--no-notice"], ["--notice", "5"]])
            stack.trainyard("preempt", node, *word)
            stack.trainyard("preempt", node, "--return")
        submitted.end(0)
    assert len(run.nodes) == LOSSES + 1
    run.assert_no_checkpointed_step_was_lost()
    assert run.sha256 == stack.run_of("steady").sha256
    assert stack.trainyard("status").out.count(" ready ") == 5
