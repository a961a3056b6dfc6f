"""`trainyard team secret`: members create versions of a secret, and can never read a value."""

import io
from typing import Any

import pytest

from infra.clients.kubernetes import Object
from infra.clients.kubernetes.api import Query
from infra.errors import InputError, TrainyardError
from tests.problems import problem_of
from tests.trainyard.jobs.fake_api import FakeApi
from tests.trainyard.jobs.lists import NAMESPACE, research
from trainyard.jobs.secrets import MOST_BYTES, Secrets, Version, _value, checked, secrets_of

SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"


def secrets(*existing: str) -> tuple[Secrets, FakeApi]:
    """Return a member's secrets, who may only create them (tests/e2e/test_tenancy.py)."""
    cluster = research()
    deletions = {f"DELETE {SECRETS}/{name}" for name in existing}
    api = FakeApi(
        {SECRETS: [{"metadata": {"name": name}} for name in existing]}, {f"GET {SECRETS}", *deletions}
    )
    cluster.api = api
    return Secrets(cluster, NAMESPACE), api


def test_each_value_is_a_new_object() -> None:
    found, api = secrets()
    assert [found.add("HF_TOKEN", value).object_name for value in (b"a", b"b", b"c")] == [
        "hf-token-v1",
        "hf-token-v2",
        "hf-token-v3",
    ]
    made = api.lists[SECRETS][1]
    assert made["data"] == {"HF_TOKEN": "Yg=="}
    assert made["immutable"]
    assert made["metadata"]["labels"] == {"trainyard.dev/secret": "HF_TOKEN"}


@pytest.mark.parametrize("number", [0, 1, 2, 3, 4, 5, 31, 32, 33, 1000])
def test_the_newest_version_is_found_without_reading_any(number: int) -> None:
    found, api = secrets(*(f"wandb-key-v{each}" for each in range(1, number + 1)))
    newest = found.newest("WANDB_KEY")
    assert (newest.number if newest else 0) == number
    assert len(api.asked) <= 21
    assert len(api.lists[SECRETS]) == number, "trials make nothing"


def test_a_version_that_another_user_creates_at_the_same_time_is_skipped() -> None:
    found, api = secrets("token-v1")
    honest, other = api.create, {"metadata": {"name": "token-v2"}}

    def racing(path: str, body: Object, query: Query) -> Any:
        if not query and other not in api.lists[SECRETS]:
            api.lists[SECRETS].append(other)
        return honest(path, body, query)

    api.create = racing  # type: ignore[method-assign, assignment]
    assert found.add("TOKEN", b"mine").number == 3


@pytest.mark.parametrize("ask", [lambda found: found.versions(), lambda found: found.remove("TOKEN")])
def test_a_missing_right_is_reported(ask: Any) -> None:
    found, _ = secrets("token-v1")
    with pytest.raises(TrainyardError, match="may only create new ones"):
        ask(found)


@pytest.mark.parametrize("name", ["hf_token", "HF-TOKEN", "_A", "1A", "", "A" * 101, "HF_TOKEN=swordfish"])
def test_an_invalid_name_is_refused_and_a_value_in_it_is_not_printed(name: str) -> None:
    problem = problem_of(lambda: checked(name))
    assert "swordfish" not in str(problem) and "HF_TOKEN" in problem.allowed


def test_two_names_never_share_an_object() -> None:
    names = ["A_B", "A__B", "AB", "A_B_V1", "A_B_V"]
    assert len({Version(name, number).object_name for name in names for number in (1, 11)}) == 10


def given(monkeypatch: pytest.MonkeyPatch, value: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(value)))


@pytest.mark.parametrize(
    ("text", "value"), [(b"abc\n", b"abc"), (b"abc", b"abc"), (b"a\nb\n\n", b"a\nb\n"), (b"a\r\n", b"a")]
)
def test_one_trailing_newline_is_not_part_of_a_value(
    text: bytes, value: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    given(monkeypatch, text)
    assert _value("TOKEN") == value


@pytest.mark.parametrize("text", [b"", b"\n", b"a" * (MOST_BYTES + 1)])
def test_empty_values_and_too_long_values_are_refused(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    given(monkeypatch, text)
    with pytest.raises(InputError, match="1 byte to 1 MiB"):
        _value("TOKEN")


def test_secrets_are_variables_or_files() -> None:
    assert secrets_of(["HF_TOKEN", "HF_TOKEN=TOKEN", "NETRC=@netrc"]) == [
        ("HF_TOKEN", {"key": "HF_TOKEN", "variable": "HF_TOKEN"}),
        ("HF_TOKEN", {"key": "HF_TOKEN", "variable": "TOKEN"}),
        ("NETRC", {"key": "NETRC", "file": "netrc"}),
    ]
    with pytest.raises(InputError, match="capital letters"):
        secrets_of(["hf-token"])
