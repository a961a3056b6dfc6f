"""The example stacks of docs/other-clouds.md are valid."""

import re
from pathlib import Path

import pytest

from infra.common.artifacts import ROOT
from infra.stackfile import load

PAGE = (ROOT / "docs" / "other-clouds.md").read_text()
STACKS = {
    match["heading"]: match["yaml"]
    for match in re.finditer(
        r"^## (?P<heading>[^\n]+)\n(?:(?!^## ).)*?```yaml\n(?P<yaml>.*?)```", PAGE, re.M | re.S
    )
}


@pytest.mark.parametrize("provider", STACKS)
def test_the_stack_of_a_provider_is_a_valid_file(provider: str, tmp_path: Path) -> None:
    file = tmp_path / "Pulumi.mine.yaml"
    file.write_text(STACKS[provider])
    assert load(file).target.kind == "onprem"
