"""A user's AWS configuration does not affect a rehearsal, whose requests moto answers in this process."""

from pathlib import Path

import pytest

from rehearsal.aws.models import client

pytestmark = pytest.mark.clouds


def test_the_users_profile_and_endpoint_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config").write_text("[default]\nendpoint_url = http://127.0.0.1:9\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    made = client.__wrapped__("s3", "us-east-2")
    assert made.meta.endpoint_url == "https://s3.us-east-2.amazonaws.com"
