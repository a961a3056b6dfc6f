"""The configuration of a run: overrides, and wrong values, which are all reported before anything starts."""

from pathlib import Path

import pytest

from trainyard_train.config import load_config, parse_config
from trainyard_train.config_base import ConfigError, require

WRONG = [
    ({"steps": 0}, "steps: got 0"),
    ({"steps": "many"}, "steps: got 'many'"),
    ({"stpes": 3}, "stpes: got 3, but there is no such setting"),
    (
        {"data": {"side": 64}},
        "data.side: got 64, but it was removed; use WebDataset and a model of torchvision",
    ),
    ({"model": {"name": "resnet"}}, "model.name: got 'resnet': it was removed; use WebDataset"),
    ({"model": {"name": "gpt5"}}, "model.name: got 'gpt5'"),
    ({"model": {"hidden": 0}}, "model.hidden: got 0"),
    ({"optim": {"lr": float("nan")}}, "optim.lr: got nan"),
    ({"optim": {"name": "adamw", "scaling": "linear"}}, "with adamw use sqrt or none"),
    ({"checkpoint": {"keep_last": 0}}, "checkpoint.keep_last: got 0"),
    ({"checkpoint": {"store": "bucket/runs"}}, "checkpoint.store: got 'bucket/runs'"),
    ({"checkpoint": {"store": "s3://"}}, "checkpoint.store: got 's3://'"),
    ({"notices": "oracle"}, "notices: got 'oracle'"),
    ({"timeouts": {"collective": 0}}, "timeouts.collective: got 0"),
    ({"timeouts": {"stall": 30}}, "timeouts.stall: got 30; allowed: less than timeouts.collective (20)"),
    ({"timeouts": {"stall": 5, "collective": 5}}, "timeouts.stall: got 5; allowed: less than"),
]


@pytest.mark.parametrize(("values", "message"), WRONG)
def test_a_wrong_value_is_named_with_its_path(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"run_dir": "/tmp/run", **values})
    assert message in str(caught.value)


def test_all_problems_are_shown_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config({"steps": 0, "model": {"hidden": -1}, "speed": "fast"})
    assert len(caught.value.problems) == 4
    assert "run_dir: missing" in str(caught.value)


@pytest.mark.parametrize(
    ("timeouts", "stall"),
    [({}, 15), ({"collective": 120}, 15), ({"collective": 8}, 6), ({"collective": 8, "stall": 7}, 7)],
)
def test_stacks_are_written_before_a_collective_ends(timeouts: dict[str, float], stall: float) -> None:
    assert parse_config({"run_dir": "/tmp/run", "timeouts": timeouts}).timeouts.stall == stall


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("run_dir: /tmp/run\nmodel: {hidden: 8}\n")
    config = load_config(file, ["model.hidden=9", "optim.lr=0.5", "steps=7"])
    assert (config.model.hidden, config.optim.lr, config.steps) == (9, 0.5, 7)


def test_overrides_fill_an_empty_section(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("run_dir: /tmp/run\nmodel:\n")
    assert load_config(file, ["model.hidden=9"]).model.hidden == 9


def test_files_and_overrides_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(
            tmp_path / "missing.yaml", ["steps", "steps=[", "seed=2026-02-30", "run_dir=/x", "run_dir.name=y"]
        )
    text = str(caught.value)
    assert "missing.yaml" in text
    assert "--set steps: allowed: key=value" in text
    assert "--set steps=[: the value is not YAML" in text
    assert "--set seed=2026-02-30: the value is not YAML" in text
    assert "run_dir is a value, not a section" in text


@pytest.mark.parametrize("content", ["- a\n- b\n", "run_dir: [", "\x00", "run_dir: 2026-02-30"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(content)
    with pytest.raises(ConfigError, match=r"config\.yaml"):
        load_config(file)


def test_every_configuration_that_comes_with_the_package_is_valid() -> None:
    folder = Path(__file__).parents[2] / "training" / "configs"
    files = sorted(folder.glob("*.yaml"))
    assert files
    for file in files:
        load_config(file)


def test_a_configuration_that_comes_with_the_package_is_given_by_its_name(tmp_path: Path) -> None:
    shipped = Path(__file__).parents[2] / "training" / "configs" / "digits.yaml"
    assert load_config(Path("digits"), ["steps=7"]) == load_config(shipped, ["steps=7"])
    with pytest.raises(ConfigError, match="digitz: cannot be read"):
        load_config(Path("digitz"))


def test_an_older_release_than_any_tested_is_refused_and_a_pre_release_counts_as_its_release() -> None:
    for found in ("2.9.0a0+git1.nv25", "2.10.0", "3.0.0rc1"):
        require("torch", found, (2, 9))
    with pytest.raises(ConfigError, match=r"torch: got 2\.8\.1; allowed: 2\.9 or newer; install torch>=2\.9"):
        require("torch", "2.8.1", (2, 9))
