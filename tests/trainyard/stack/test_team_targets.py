"""`up --team`: which resources it looks at, on the plans of whole stacks."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from infra.common.artifacts import LINKS
from infra.errors import InputError
from infra.stackfile import Stack, load
from tests.infra.plan import artifacts, plan, stack_file
from tests.infra.stackfile.test_team_files import FORTIETH, stack
from trainyard.stack import team_targets
from trainyard.stack.session import Session

RENDERED = LINKS / "rendered"
CLUSTER = "trainyard:infra:LocalCluster"


def session(now: Stack, before: Stack, *resources: dict[str, Any], team: str = "vision") -> Session:
    """Return a session of a stack that is up as it was before."""
    inputs = {"stack": before.model_dump(mode="json", by_alias=True)}
    cluster = {"urn": f"urn:pulumi:a::b::{CLUSTER}::local", "type": CLUSTER, "inputs": inputs}
    engine = SimpleNamespace(exists=lambda _: True, resources=lambda _: [cluster, *resources])
    return cast(Session, cast(Any, SimpleNamespace(stack=now, stack_name="local", team=team, engine=engine)))


def test_up_of_a_team_looks_at_what_its_file_makes_or_shares_and_at_nothing_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(team_targets, "prepared", lambda _: artifacts(RENDERED))
    second = FORTIETH.replace("vision", "vision-2")
    now = load(stack(tmp_path, vision=FORTIETH, **{"vision-2": second}))
    (tmp_path / "teams/vision.yaml").unlink()
    before = load(tmp_path / "Pulumi.local.yaml")
    new, old = (
        {each.urn: each.inputs for each in plan(stack, RENDERED).resources} for stack in (now, before)
    )
    changed = {urn for urn in {*new, *old} if new.get(urn) != old.get(urn)}
    for stacks, state in (((now, before), old), ((before, now), new)):  # a new team; a file that is gone
        (job,) = (urn for urn in changed & state.keys() if "folders-" in urn)  # which others need
        needed = {"urn": f"urn:a::b::{job}", "type": "batch/v1:Job"}
        other = {"urn": "urn:a::b::apps/v1:Deployment::a", "type": "a", "dependencies": [needed["urn"]]}
        patterns = team_targets.team_targets(session(*stacks, needed, other))
        assert {
            urn for urn in {*new, *old} if any(matches(each, f"urn:a::b::{urn}") for each in patterns)
        } == changed - {job} | {"pulumi:pulumi:Stack::trainyard-test"}


def matches(pattern: str, urn: str) -> bool:
    """Whether the engine's pattern is of this URN (pulumi, pkg/resource/deploy/target.go)."""
    return bool(re.fullmatch(re.escape(pattern).replace(r"\*\*", ".*").replace(r"\*", "[^:]*"), urn))


def test_what_is_no_team_of_the_stack_is_refused() -> None:
    known = load(stack_file("local"))
    with pytest.raises(InputError, match="platform, research"):
        team_targets.team_targets(session(known, known))
