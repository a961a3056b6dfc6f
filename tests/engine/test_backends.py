"""States in a bucket: how the engine lists stacks and pending operations, and which key encrypts secrets."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.backends import RemoteBackend
from engine.engine import Engine, without_encryption
from infra.errors import InputError
from tests.engine.progress import RecordedProgress
from tests.engine.test_engine import EngineBench


class FakePulumiService:
    """A fake of `pulumi` for stacks in a bucket, whose names begin with their organization."""

    def __init__(self, **stacks: dict[str, Any]) -> None:
        self.stacks = stacks

    def __call__(self, _stack: str, *arguments: str) -> str:
        if arguments[:2] == ("stack", "ls"):
            return json.dumps([{"name": f"organization/tiny/{name}"} for name in self.stacks])
        assert arguments[:2] == ("stack", "export")
        return json.dumps({"version": 3, "deployment": self.stacks[arguments[-1]]})


def test_a_stack_in_a_bucket_is_known_by_its_name() -> None:
    backend = RemoteBackend(FakePulumiService(dev={"resources": [{"urn": "…"}]}, empty={}))
    assert backend.exists("dev")
    assert not backend.exists("prod")
    assert not backend.is_empty("dev")
    assert backend.is_empty("empty")
    assert backend.is_empty("prod")


def test_an_interrupted_operation_is_found_in_a_bucket_too() -> None:
    backend = RemoteBackend(FakePulumiService(cut={"pending_operations": [{}]}, whole={"resources": []}))
    assert backend.has_pending_operations("cut")
    assert not backend.has_pending_operations("whole")


def test_the_last_five_states_with_resources_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks = {"dev": {"resources": [{"urn": 0}]}, "new": {}}
    backend = RemoteBackend(FakePulumiService(**stacks))
    backend.keep("new", tmp_path / "new")
    for number in range(7):
        stacks["dev"]["resources"][0]["urn"] = number
        monkeypatch.setattr("engine.backends.time.strftime", lambda _, number=number: f"2026-{number}")
        backend.keep("dev", tmp_path / "dev")
    kept = [json.loads(each.read_text()) for each in sorted(tmp_path.rglob("*.json"))]
    assert [each["deployment"]["resources"] for each in kept] == [[{"urn": number}] for number in range(2, 7)]


@pytest.fixture
def bench(tmp_path: Any) -> EngineBench:
    return EngineBench(tmp_path)


def test_a_new_stack_gets_the_key_of_its_file(bench: EngineBench) -> None:
    bench.stack_file.write_text("secretsprovider: awskms://alias/state\nconfig:\n  tiny:size: 3\n")
    bench.engine.up("dev", RecordedProgress())
    (made,) = [asked for asked, _ in bench.asked() if asked[1:3] == ["stack", "init"]]
    assert made[-2:] == ["--secrets-provider", "awskms://alias/state"]
    copy = (bench.paths.engine / "config" / "Pulumi.dev.yaml").read_text()
    assert copy.endswith("encryptionsalt: v1:salt\nsecretsprovider: awskms://alias/state\n")


def test_the_key_of_the_environment_is_for_stacks_without_a_key(bench: EngineBench) -> None:
    variables = {**bench.engine._environment, "SECRETS_PROVIDER": "gcpkms://key"}
    Engine(bench.paths, variables).up("dev", RecordedProgress())
    (made,) = [asked for asked, _ in bench.asked() if asked[1:3] == ["stack", "init"]]
    assert made[-2:] == ["--secrets-provider", "gcpkms://key"]


def test_a_new_stack_in_a_bucket_needs_a_key_that_other_hosts_have(bench: EngineBench) -> None:
    ours = {"PULUMI_CONFIG_PASSPHRASE_FILE": str(bench.paths.engine / "passphrase")}
    variables = {**bench.engine._environment, **ours, "PULUMI_BACKEND_URL": "s3://state"}
    with pytest.raises(InputError, match="trainyard stack state-bucket"):
        Engine(bench.paths, variables)._secrets("dev")
    for other in ({"PULUMI_CONFIG_PASSPHRASE": "x"}, {"PULUMI_BACKEND_URL": "file:///state"}):
        assert Engine(bench.paths, {**variables, **other})._secrets("dev") == []


def test_a_separate_state_does_not_use_the_key_of_another_one() -> None:
    own = "config:\n  tiny:size: 3\n"
    assert (
        without_encryption(f"secretsprovider: awskms://a\nencryptedkey: x\n{own}encryptionsalt: v1:s\n")
        == own
    )
