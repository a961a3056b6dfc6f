"""`trainyard new`: a project of each template, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from infra.common.artifacts import ROOT
from infra.errors import InputError
from infra.stackfile import load
from trainyard.commands.new import new

TEMPLATES = sorted(file.parent.name for file in (ROOT / "templates").glob("*/Pulumi.yaml"))


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_project_has_the_templates_files_and_no_placeholder(template: str, tmp_path: Path) -> None:
    new(template, tmp_path / "models")
    source = ROOT / "templates" / template
    files = {file.relative_to(source) for file in source.rglob("*") if file.is_file()}
    texts = {file: (tmp_path / "models" / file).read_text() for file in files}
    assert not [file for file, text in texts.items() if "${PROJECT}" in text or "${DESCRIPTION}" in text]
    project = yaml.safe_load(texts[Path("Pulumi.yaml")])
    before = yaml.safe_load((source / "Pulumi.yaml").read_text())
    assert project["name"] == "models"
    assert project.keys() == before.keys() - {"template"}
    if template not in {"fleet", "job", "policies"}:
        assert load(tmp_path / "models" / "stacks" / "Pulumi.dev.yaml").pools


def test_all_that_is_wrong_is_reported_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "My Models").mkdir()
    with pytest.raises(InputError) as refused:
        new("amazon", tmp_path / "My Models")
    assert [each.path for each in refused.value.problems] == ["TEMPLATE", "FOLDER", "FOLDER"]
    assert "aws, azure" in str(refused.value)
    assert not [*(tmp_path / "My Models").iterdir()]
