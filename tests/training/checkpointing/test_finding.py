"""A start under bad storage: it does not begin at step 0 beside checkpoints, nor touch what may be whole."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.training.checkpointing.test_faults import failing
from tests.training.launch import events, settings, sha256, start
from tests.training.test_trainer import NoticeAt, configure, train
from trainyard_train.checkpointing.checkpoint import UnreadableError
from trainyard_train.checkpointing.finding import UnusableError
from trainyard_train.checkpointing.folder_store import Files
from trainyard_train.contract import EXIT_UNUSABLE

SAVED = (5, 10, 15)
NAMES = [f"step-{step:08d}" for step in SAVED]


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("interrupted")
    assert not train(configure(run_dir), NoticeAt(14))
    assert sorted(path.name for path in (run_dir / "checkpoints").glob("step-*")) == NAMES
    return run_dir


@pytest.fixture
def run_dir(interrupted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(interrupted, tmp_path / "run"))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    run_dir = tmp_path_factory.mktemp("undisturbed")
    assert train(configure(run_dir))
    return sha256(run_dir)


def content(run_dir: Path) -> dict[str, bytes]:
    walked = os.walk(run_dir / "checkpoints")  # by calls that do not fail here
    paths = (Path(top, name) for top, _, names in walked for name in names)
    return {str(path): path.read_bytes() for path in paths}


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def harm_all(run_dir: Path, harm: Callable[[Path], None]) -> None:
    for name in NAMES:
        harm(run_dir / "checkpoints" / name / "rank-00000.safetensors")


@pytest.mark.parametrize("harm", [cut, flip, Path.unlink])
def test_a_run_whose_checkpoints_are_all_damaged_begins_at_step_0_only_on_a_word(
    run_dir: Path, undisturbed: str, harm: Callable[[Path], None]
) -> None:
    harm_all(run_dir, harm)
    before = content(run_dir)
    for _ in range(2):  # a restart changes nothing
        with pytest.raises(UnusableError, match="--from-scratch") as caught:
            train(configure(run_dir))
        assert all(f"{name}: rank-00000.safetensors" in str(caught.value) for name in NAMES)
        assert "restore one of them from a snapshot or a backup" in str(caught.value)
        assert content(run_dir) == before
    train(configure(run_dir, checkpoint={"every_steps": 5, "from_scratch": True}))
    assert len(events(run_dir, "started")[-1]["damaged"]) == len(SAVED)
    assert sha256(run_dir) == undisturbed


def test_checkpoints_that_were_set_aside_before_are_a_reason_not_to_begin_at_step_0(run_dir: Path) -> None:
    for name in NAMES:
        (run_dir / "checkpoints" / name).rename(run_dir / "checkpoints" / f"{name}.damaged.0a1b2c3d")
    with pytest.raises(UnusableError, match=r"step-00000005\.damaged\.0a1b2c3d: was set aside before"):
        train(configure(run_dir))


def test_the_word_for_step_0_skips_no_checkpoint_that_can_be_used(run_dir: Path, undisturbed: str) -> None:
    flip(run_dir / "checkpoints" / NAMES[2] / "rank-00000.safetensors")
    train(configure(run_dir, checkpoint={"every_steps": 5, "from_scratch": True}))
    assert events(run_dir, "resumed")[0]["step"] == 10
    assert sha256(run_dir) == undisturbed


def test_the_command_has_an_exit_code_of_its_own_for_it(run_dir: Path) -> None:
    arguments = settings(run_dir, steps=24, **{"model.dropout": 0.3, "data.batch_size_per_rank": 100})
    harm_all(run_dir, flip)
    [(code, output)] = start(1, arguments).wait()
    assert (code, "none can be used" in output) == (EXIT_UNUSABLE, True)
    assert "Traceback" not in output
    [(code, _)] = start(1, [*arguments, "--from-scratch"]).wait()
    assert code == 0


@pytest.mark.parametrize(("owner", "call"), [(os, "preadv"), (Path, "stat")])
def test_a_checkpoint_that_cannot_be_read_stays_and_the_newest_one_that_can_is_offered(
    run_dir: Path, undisturbed: str, owner: object, call: str
) -> None:
    before = content(run_dir)
    with failing(owner, call, f"{NAMES[2]}/rank", "ESTALE"):
        with pytest.raises(UnreadableError, match="mount the filesystem again") as caught:
            train(configure(run_dir))
        text = str(caught.value)
        assert f"{run_dir}/checkpoints/step-00000015/rank-00000.safetensors" in text
        assert "the newest one that can be read is step-00000010; to resume from it, set" in text
        assert "step 0" not in text
        assert content(run_dir) == before
        train(configure(run_dir, steps=14, checkpoint={"every_steps": 5, "skip_unreadable": True}))
        assert events(run_dir, "resumed")[0]["step"] == 10
    assert (
        before.items() >= {name: each for name, each in content(run_dir).items() if NAMES[2] in name}.items()
    )
    train(configure(run_dir))
    assert sha256(run_dir) == undisturbed


def test_a_damaged_checkpoint_on_a_read_only_mount_costs_the_steps_since_the_one_before(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(run_dir / "checkpoints" / NAMES[2] / "rank-00000.safetensors")

    def refuse(_: Files, source: Path, target: Path) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(source))

    monkeypatch.setattr(Files, "rename", refuse)
    with pytest.raises(OSError, match="could not be saved"):
        train(configure(run_dir))
    [resumed] = events(run_dir, "resumed")
    assert resumed["step"] == 10
    assert "cannot be set aside, and stays" in resumed["damaged"][0]
    assert (run_dir / "checkpoints" / NAMES[2]).exists()


def test_latest_names_the_checkpoint_that_replaces_a_damaged_one(run_dir: Path) -> None:
    cut(run_dir / "checkpoints" / NAMES[2] / "rank-00000.safetensors")
    train(configure(run_dir, steps=10))
    assert (run_dir / "checkpoints" / "latest").read_text() == NAMES[1]
