"""The team namespaces that a member's command reads."""

from types import SimpleNamespace
from typing import Any

import pytest

from infra.errors import InputError
from trainyard.jobs.cluster import MemberCluster
from trainyard.stack.session import Session

TEAMS = ["team-research", "team-speech"]


def cluster(team: str, labelled: list[str], monkeypatch: pytest.MonkeyPatch) -> MemberCluster:
    """Make a cluster; `labelled` are the namespaces that the user may list."""
    monkeypatch.setattr(MemberCluster, "_labelled_namespaces", lambda _: labelled)
    session: Any = Session("none", context="", team=team)
    session.api = SimpleNamespace()
    return MemberCluster(session)


@pytest.mark.parametrize("labelled", [TEAMS, []], ids=["administrator", "member"])
def test_a_named_team_is_the_only_one(labelled: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = cluster("speech", labelled, monkeypatch)
    assert found.namespaces == ["team-speech"]
    assert found.namespace == "team-speech"


def test_without_a_name_an_administrator_sees_all_teams(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cluster("", TEAMS, monkeypatch)
    assert found.namespaces == TEAMS
    with pytest.raises(InputError, match="one of research, speech"):
        _ = found.namespace


def test_a_team_that_does_not_exist_is_reported_with_those_that_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"speach\n.*research, speech"):
        _ = cluster("speach", TEAMS, monkeypatch).namespaces
