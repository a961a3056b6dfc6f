"""Wrong queues and teams, each a patch of a valid stack, with the exact messages."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.errors import ExitCode, InputError
from infra.stackfile.limits import limits_of
from infra.stackfile.stack_file import parse
from tests.patches import changed

FOLDER = Path(__file__).parent / "queues"
GOOD = yaml.safe_load((FOLDER / "good.yaml").read_text())
WRONG = yaml.safe_load((FOLDER / "wrong.yaml").read_text())


@pytest.mark.parametrize("case", WRONG, ids=lambda case: " ".join(case["set"]))
def test_a_wrong_queue_or_team_is_reported_with_path_allowed_and_fix(case: Mapping[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        parse(changed(GOOD, case["set"]))
    assert caught.value.exit_code is ExitCode.WRONG_INPUT
    found = [f"{each.path}: {each.got}; {each.allowed}; {each.fix}" for each in caught.value.problems]
    assert found == case["problems"]


def test_they_cover_the_keys_of_queues_and_teams() -> None:
    covered = {key.split("[")[0] for case in WRONG for path in case["set"] for key in path.split(".")}
    stack = parse(GOOD)
    queue, team = stack.queues[0], stack.teams[0]
    models = (type(each) for each in (queue, queue.flavors[0], team, team.limits))
    assert {model.key_of(field) for model in models for field in model.model_fields} <= covered


def test_limits_that_are_left_out_come_from_the_pools_of_the_teams_queues() -> None:
    stack = parse(changed(GOOD, {"pools[1].accelerator.count": 16}))
    _, speech, robots = (limits_of(team, stack.queues, stack.pools) for team in stack.teams)
    assert (speech.job_pods, speech.pods, speech.cpus, speech.memory_gib) == (8, 64, 64, 256)
    assert (robots.job_pods, robots.pods) == (128, 500)
    alone = parse(changed(GOOD, {"teams[2].more_queues": []}))
    small = limits_of(alone.teams[2], alone.queues, alone.pools)
    assert (small.job_pods, small.pods) == (100, 500)
    assert (small.cpus, small.memory_gib) == (2 * 8 * 256, 2 * 8 * 4096), "defaults of undescribed machines"
