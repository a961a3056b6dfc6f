"""Secrets that `trainyard job bundle` redacts; the whole bundle is tested in tests/e2e/test_member.py."""

import pytest

from trainyard.jobs.bundle import MASK, masked

REFERENCE = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf-token-v1", "key": "HF_TOKEN"}}}


@pytest.mark.parametrize("name", ["HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "db_password"])
def test_values_of_variables_that_are_named_as_secrets_are_left_out(name: str) -> None:
    pod = {"spec": {"containers": [{"env": [{"name": name, "value": "swordfish"}]}]}}
    assert "swordfish" not in str(masked(pod))
    assert MASK in str(masked(pod))


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "MASTER_ADDR", "TOKENIZERS_DIR"[10:], "KEYBOARD"])
def test_other_variables_and_references_are_unchanged(name: str) -> None:
    env = [{"name": name, "value": "WARN"}, REFERENCE]
    assert masked(env) == env


@pytest.mark.parametrize(
    "arguments",
    [
        ["python", "train.py", "--hf-token=swordfish"],
        ["python", "train.py", "--hf-token", "swordfish"],
        ["sh", "-c", "python train.py --api-key swordfish"],
        ["curl", "https://me:swordfish@example.com/data"],
    ],
)
def test_secrets_among_arguments_are_left_out(arguments: list[str]) -> None:
    assert "swordfish" not in str(masked({"args": arguments}))


def test_missing_arguments_are_unchanged() -> None:
    arguments = ["python", "train.py", "--lr", "3e-4", "--tokens", "100"]
    assert masked(arguments)[:4] == arguments[:4]
