"""The backend of the engine's state: that of the stack file, else of the environment, else on this host."""

from pathlib import Path

import pytest

from infra.errors import InputError
from trainyard.stack.state import backend_variables, declared_backend

LOCAL = {"PULUMI_BACKEND_URL": "file:///state", "PULUMI_CONFIG_PASSPHRASE_FILE": "/state/passphrase"}


def stack_file(folder: Path, backend: str = "") -> Path:
    file = folder / "Pulumi.mine.yaml"
    file.write_text(
        "config:\n  trainyard:stack: {}\n" + (f"  trainyard:backend: {backend}\n" if backend else "")
    )
    return file


def test_without_a_backend_the_state_is_on_this_host(tmp_path: Path) -> None:
    assert backend_variables(stack_file(tmp_path), LOCAL, {}) == LOCAL


def test_the_stack_file_precedes_the_environment(tmp_path: Path) -> None:
    file = stack_file(tmp_path, "s3://ours")
    environ = {"PULUMI_BACKEND_URL": "gs://other", "HOME": "/home/me"}
    variables = backend_variables(file, LOCAL, environ)
    assert variables["PULUMI_BACKEND_URL"] == "s3://ours"
    assert variables["PULUMI_CREDENTIALS_PATH"] == "/home/me/.pulumi"
    variables = backend_variables(stack_file(tmp_path), LOCAL, environ)
    assert variables["PULUMI_BACKEND_URL"] == "gs://other"


def test_a_remote_state_is_sent_compressed_unless_the_user_sets_it(tmp_path: Path) -> None:
    file = stack_file(tmp_path, "s3://ours")
    assert backend_variables(file, LOCAL, {})["PULUMI_DIY_BACKEND_GZIP"] == "true"
    variables = backend_variables(file, LOCAL, {"PULUMI_DIY_BACKEND_GZIP": "false"})
    assert variables["PULUMI_DIY_BACKEND_GZIP"] == "false"


def test_variables_of_trainyard_env_do_not_count_as_another_backend(tmp_path: Path) -> None:
    environ = {"PULUMI_BACKEND_URL": LOCAL["PULUMI_BACKEND_URL"]}
    assert backend_variables(stack_file(tmp_path), LOCAL, environ) == LOCAL


def test_a_shared_state_is_opened_by_the_users_passphrase(tmp_path: Path) -> None:
    environ = {"PULUMI_CONFIG_PASSPHRASE": "theirs"}
    printed = backend_variables(stack_file(tmp_path, "azblob://state"), LOCAL, environ)
    assert "theirs" not in printed.values()  # `trainyard stack env` prints them
    variables = {**environ, **printed}
    assert variables["PULUMI_CONFIG_PASSPHRASE"] == "theirs"
    assert "PULUMI_CONFIG_PASSPHRASE_FILE" not in variables


def test_a_stack_file_that_is_no_yaml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="allowed: YAML"):
        declared_backend(stack_file(tmp_path, "[s3://a"))


@pytest.mark.parametrize("backend", ["bucket", "[s3://a]", "ftp://b"])
def test_an_invalid_backend_is_refused(backend: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"trainyard:backend(.|\n)*azblob://"):
        declared_backend(stack_file(tmp_path, backend))
