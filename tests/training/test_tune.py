"""Hyperparameter search: it prunes bad trials, resumes interrupted ones, and survives failing ones."""

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import optuna
import psutil
import pytest
import yaml
from optuna.trial import TrialState

from tests.processes import free_port, wait_for
from tests.training.launch import events
from tests.training.test_trainer import NoticeAt
from trainyard_train.config_base import ConfigError
from trainyard_train.elasticity.preemption import PreemptionNotice
from trainyard_train.tune import _open_study, _write_best, load_search, main, search_for

optuna.logging.set_verbosity(optuna.logging.ERROR)
SPACE: dict[str, Any] = {
    "optim.lr": {"low": 1e-6, "high": 0.5, "log": True},
    "model.hidden": {"choices": [8, 16]},
}


def write(tmp_path: Path, **values: Any) -> str:
    config = {
        "run_dir": str(tmp_path / "study"),
        "steps": 40,
        "evaluate_every": 10,
        "checkpoint": {"every_steps": 50},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    path = tmp_path / "search.yaml"
    path.write_text(yaml.safe_dump({"config": str(tmp_path / "config.yaml"), "search": SPACE} | values))
    return str(path)


def test_a_search_finds_a_rate_that_learns_and_prunes_trials_that_do_not(tmp_path: Path) -> None:
    search, config = load_search(write(tmp_path, trials=12), [])
    study = search_for(search, config, [], PreemptionNotice(60))
    assert study
    trials = study.get_trials()
    assert len(trials) == 12
    assert study.best_value < 1.0
    assert study.best_params["optim.lr"] > 0.01
    pruned = [trial for trial in trials if trial.state == TrialState.PRUNED]
    assert pruned
    assert all(len(trial.intermediate_values) < 4 for trial in pruned)


def test_a_preempted_trial_resumes(tmp_path: Path) -> None:
    search, config = load_search(write(tmp_path, trials=1), [])
    assert search_for(search, config, [], NoticeAt(15)) is None
    study = search_for(search, config, [], PreemptionNotice(60))
    assert study
    preempted, retried = study.get_trials()
    assert (preempted.state, retried.state) == (TrialState.FAIL, TrialState.COMPLETE)
    assert retried.params == preempted.params
    assert events(tmp_path / "study" / "trial-00000", "resumed")[0]["step"] == 16
    assert not (tmp_path / "study" / "trial-00001").exists()


def test_workers_of_one_trial_each_make_the_configured_number_and_the_best_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PreemptionNotice, "watch", lambda self: None)  # pytest handles signals
    text = json.dumps(yaml.safe_load(Path(write(tmp_path, trials=2)).read_text()))
    for worker, count in (("a", 1), ("a", 1), ("b", 2), ("c", 2)):
        assert main([text, f"--one={worker}", "--set=steps=10"]) == 0
        assert len(list((tmp_path / "study").glob("trial-*"))) == count
    best = json.loads((tmp_path / "study" / "best.json").read_text())
    assert set(best["settings"]) == set(SPACE)


def test_a_worker_is_a_separate_process(tmp_path: Path) -> None:
    search = write(tmp_path, trials=1)
    command = [sys.executable, "-m", "trainyard_train.tune", search, "--one=a", "--set=steps=10"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["settings"]) == set(SPACE)


def test_a_killed_worker_resumes_its_trial_from_its_checkpoint(tmp_path: Path) -> None:
    source, short = write(tmp_path, trials=1), ["steps=20", "checkpoint.every_steps=10"]
    pair = load_search(source, short)

    class KilledTrialError(BaseException):
        pass

    class Kill(NoticeAt):
        def request(self) -> None:
            wait_for(lambda: list((tmp_path / "study").glob("trial-*/checkpoints/step-00000010")))
            raise KilledTrialError

    with pytest.raises(KilledTrialError):
        search_for(*pair, short, Kill(15), one="a")
    study = search_for(*pair, short, PreemptionNotice(60), one="a")
    assert study
    killed, made = study.get_trials()
    assert (killed.state, made.state) == (TrialState.FAIL, TrialState.COMPLETE)
    assert killed.params == made.params
    (folder,) = (tmp_path / "study").glob("trial-*")
    assert events(folder, "resumed")[0]["step"] == 10


def test_another_workers_best_trial_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = optuna.create_study()
    study.add_trial(optuna.trial.create_trial(value=2.0, params={}, distributions={}))
    replace = Path.replace

    def slowly(staged: Path, target: Path) -> Path:
        if len(study.get_trials()) == 1:
            study.add_trial(optuna.trial.create_trial(value=1.0, params={}, distributions={}))
        return replace(staged, target)

    monkeypatch.setattr(Path, "replace", slowly)
    assert _write_best(study, tmp_path)["loss"] == 1.0
    assert json.loads((tmp_path / "best.json").read_text())["trial"] == 1


def test_a_search_with_pruned_trials_only_has_no_best_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(PreemptionNotice, "watch", lambda self: None)
    source = write(tmp_path, trials=1)
    study = _open_study(load_search(source, [])[1])
    study.add_trial(optuna.trial.create_trial(state=TrialState.PRUNED, value=2.0))
    assert main([source]) == 0
    assert "training: no trial has finished yet" in capfd.readouterr().err


def open_files() -> int:
    return psutil.Process().num_fds()


def test_trials_of_one_process_leave_no_port_no_thread_and_no_file_behind(tmp_path: Path) -> None:
    short = ["steps=2", f"export.prometheus_port={free_port()}"]
    search, config = load_search(write(tmp_path, trials=1), short)
    assert search_for(search, config, short, PreemptionNotice(60))
    files, threads = open_files(), threading.active_count()
    study = search_for(search.model_copy(update={"trials": 6}), config, short, PreemptionNotice(60))
    assert study
    assert [trial.state for trial in study.get_trials()] == [TrialState.COMPLETE] * 6
    wait_for(lambda: (open_files(), threading.active_count()) <= (files, threads))


class FailingTrials(PreemptionNotice):
    """Raises an error in the first step of the trials with these numbers."""

    def __init__(self, *numbers: int) -> None:
        super().__init__(60)
        self._trial, self._numbers = -1, numbers

    def begin_steps(self) -> None:
        self._trial += 1

    def sleep(self, seconds: float) -> None:
        if self._trial in self._numbers:
            raise RuntimeError("CUDA out of memory")


def test_a_trial_that_fails_is_marked_with_its_reason_and_the_search_continues(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    short = ["steps=2"]
    study = search_for(*load_search(write(tmp_path, trials=3), short), short, FailingTrials(0, 2, 3))
    assert study
    states = [trial.state.name for trial in study.get_trials()]
    assert states == ["FAIL", "COMPLETE", "FAIL", "FAIL", "COMPLETE", "COMPLETE"]
    assert study.get_trials()[2].user_attrs["error"] == "RuntimeError: CUDA out of memory"
    assert "training: trial 2 failed: RuntimeError: CUDA out of memory; settings: {" in capfd.readouterr().err
    (failed,) = events(tmp_path / "study" / "trial-00002", "failed")
    assert failed["error"] == "RuntimeError: CUDA out of memory"


def test_a_worker_whose_trials_all_fail_ends_with_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("trainyard_train.tune.listen", lambda _: FailingTrials(*range(9)))
    assert main([write(tmp_path, trials=9), "--set=steps=2"]) == 1
    assert len(list((tmp_path / "study").glob("trial-*"))) == 3
    assert "training: 3 consecutive trials failed: the errors are above and in" in capfd.readouterr().err
    assert main([write(tmp_path, trials=9), "--set=steps=2", "--one=a"]) == 1
    assert len(list((tmp_path / "study").glob("trial-*"))) == 4


def test_processes_that_make_one_trial_each_try_different_settings_and_the_same_again(tmp_path: Path) -> None:
    def tried(folder: Path, seed: int) -> list[dict[str, Any]]:
        folder.mkdir()
        source, short = write(folder, trials=3, seed=seed), ["steps=2"]
        for worker in "abc":
            study = search_for(*load_search(source, short), short, PreemptionNotice(60), one=worker)
        assert study
        return [trial.params for trial in study.get_trials()]

    first = tried(tmp_path / "first", seed=0)
    assert len({params["optim.lr"] for params in first}) == 3
    assert tried(tmp_path / "again", seed=0) == first
    assert tried(tmp_path / "other", seed=1) != first


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"search": {"optim.lr": {"low": 1}}}, "search.optim.lr: Value error, allowed: low and high"),
        ({"search": {"optim.lr": {"low": 2, "high": 1}}}, "low: got 2.0; allowed: below high (1.0)"),
        ({"search": {"optim.lr": {"low": 0, "high": 1, "log": True}}}, "allowed with log: above 0"),
        ({"search": {"optim.rate": {"choices": [1]}}}, "optim.rate: got 1, but there is no such setting"),
        ({"search": {}}, "search: "),
        ({"trials": 0}, "trials: "),
    ],
)
def test_a_wrong_search_is_refused_first(tmp_path: Path, values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_search(write(tmp_path, **values), [])
    assert message in str(caught.value)
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize("content", [b"\xff", b"trials: 2026-02-30", b"["])
def test_a_search_that_is_no_yaml_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "search.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be read as YAML"):
        load_search(str(tmp_path / "search.yaml"), [])
