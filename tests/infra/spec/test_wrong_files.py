from __future__ import annotations

from pathlib import Path

import pytest

from infra.errors import ExitCode, InputError
from infra.spec import load
from tests.infra.golden import CASES, assert_matches

WRONG = sorted((CASES / "wrong").glob("*.yaml"))


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_a_wrong_stack_file_says_where_what_is_allowed_and_what_to_do(path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load(path)
    assert caught.value.exit_code is ExitCode.WRONG_INPUT
    shown = str(caught.value).replace(str(path), path.name)
    assert_matches(shown + "\n", path.with_suffix(".txt"))


def test_there_are_enough_wrong_files_to_cover_the_spec() -> None:
    assert len(WRONG) >= 25
    for cloud in ("aws-", "azure-", "coreweave-", "gcp-", "onprem-"):
        assert sum(path.name.startswith(cloud) for path in WRONG) >= 30
    assert sum(path.name.startswith(("aws-", "gcp-")) for path in WRONG) >= 60
