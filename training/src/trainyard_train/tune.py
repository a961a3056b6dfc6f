"""Hyperparameter search with Optuna, whose workers share one study: `python -m trainyard_train.tune
SEARCH.yaml`.

Workers on several hosts share the study through a file (docs/training.md, "Search for hyperparameters"). With
`--one NAME` the command ends after one trial, and a second start with that name makes no second trial: so
`trainyard job search` makes each trial a separate job, which may be restarted at any moment.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import traceback
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError, model_validator

from trainyard_train.config import TrainConfig, load_config, parse_yaml
from trainyard_train.config_base import ConfigError, ConfigSection, RefusalError, extra
from trainyard_train.contract import EXIT_FAILED, EXIT_PREEMPTED, FILE, read_metrics
from trainyard_train.elasticity import startup
from trainyard_train.elasticity.agent import log_refusal
from trainyard_train.elasticity.preemption import PreemptionNotice, listen
from trainyard_train.observability.rank_log import log_line

if TYPE_CHECKING:
    import optuna

_RUN_DIR = "run_dir"
_WORKER = "worker"
_ERROR = "error"
FAILURES = 3
"""Number of trials that must fail in a row until a worker ends: the settings are not the cause."""


class SearchError(RefusalError):
    """No trial comes to its end."""

    exit_code = EXIT_FAILED


class Range(ConfigSection):
    """The values that a setting may take: from `low` to `high`, or one of `choices`."""

    low: float | None = None
    high: float | None = None
    log: bool = False
    """Whether values are sampled on a logarithmic scale."""
    integer: bool = False
    choices: tuple[str | int | float | bool, ...] = ()

    @model_validator(mode="after")
    def _one_or_the_other(self) -> Range:
        if bool(self.choices) == (self.low is not None and self.high is not None):
            raise ValueError("allowed: low and high, or choices")
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"low: got {self.low}; allowed: below high ({self.high})")
        if self.log and (self.low or 0) <= 0:
            raise ValueError(f"low: got {self.low}; allowed with log: above 0")
        return self

    def suggest(self, trial: optuna.Trial, name: str) -> str | int | float | bool | None:
        """Ask Optuna for the next value."""
        if self.choices:
            return trial.suggest_categorical(name, self.choices)
        assert self.low is not None
        assert self.high is not None
        if self.integer:
            return trial.suggest_int(name, int(self.low), int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)

    @property
    def example(self) -> object:
        """Return one of the values, as an example."""
        return self.choices[0] if self.choices else int(self.low or 0) if self.integer else self.low


class Search(ConfigSection):
    """A search: the configuration that all trials share, and the ranges of the other settings."""

    config: Path
    """Configuration of the runs; each run gets a separate folder below its run_dir."""
    search: dict[str, Range] = Field(min_length=1)
    """Setting, such as `optim.lr`, → its values."""
    trials: int = Field(default=20, ge=1)
    """Number of trials of all workers together."""
    seed: int = 0


def read_search(source: str) -> Search:
    """Read a search.

    Args:
        source: path of the search's file, or the search itself as YAML in braces.

    Raises:
        ConfigError: with every problem.
    """
    where = "search" if source.startswith("{") else source
    try:
        return Search.model_validate(
            parse_yaml(source if source.startswith("{") else Path(source).read_text())
        )
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]
        raise ConfigError([f"{where}: {problem}" for problem in problems]) from None
    except (OSError, ValueError) as error:
        raise ConfigError([f"{where}: cannot be read as YAML: {error}"]) from None


def load_search(source: str, overrides: Sequence[str]) -> tuple[Search, TrainConfig]:
    """Read a search, and check that its settings exist and may take their values.

    Raises:
        ConfigError: with every problem; nothing has been started.
    """
    search = read_search(source)
    examples = {name: values.example for name, values in search.search.items()}
    return search, load_config(search.config, [*overrides, *_settings(examples)])


def run_trial(
    trial: optuna.Trial, search: Search, overrides: Sequence[str], notice: PreemptionNotice
) -> float:
    """Train with what Optuna suggests; returns the held-out loss at the end.

    Raises:
        optuna.TrialPruned: others were better at the same step.
        InterruptedError: this process was preempted; the run is saved.
    """
    import optuna

    from trainyard_train.launchers import process_group
    from trainyard_train.trainer import DivergedError, Trainer

    values = {name: values.suggest(trial, name) for name, values in search.search.items()}
    base = load_config(search.config, [*overrides, *_settings(values)])
    folder = trial.user_attrs.get(_RUN_DIR) or str(base.run_dir / f"trial-{trial.number:05d}")
    trial.set_user_attr(_RUN_DIR, folder)
    config = base.model_copy(update={_RUN_DIR: Path(folder)})
    losses = [line["loss"] for line in read_metrics(config.run_dir / FILE) if line["event"] == "evaluation"]

    def look(line: Mapping[str, Any]) -> None:
        if line["event"] == "evaluation":
            losses.append(line["loss"])
            trial.report(line["loss"], line["step"])
            if line["step"] < config.steps and trial.should_prune():
                raise optuna.TrialPruned

    alone = {name: value for name, value in os.environ.items() if name == "NODE_NAME"}
    with startup.deterministic(config.deterministic):
        trainer = Trainer(config, process_group.join(config.timeouts, alone), notice, [look])
        try:
            finished = trainer.run(0)
        except optuna.TrialPruned:
            trainer.record_failure("others were better at the same step")
            raise
        except DivergedError as error:
            trainer.record_failure(str(error))
            raise optuna.TrialPruned from None
        except Exception as error:
            trainer.record_failure(_reason(error))
            raise
        finally:
            trainer.close()
    if not finished:
        raise InterruptedError
    return float(losses[-1])


def search_for(
    search: Search, config: TrainConfig, overrides: Sequence[str], notice: PreemptionNotice, *, one: str = ""
) -> optuna.Study | None:
    """Run trials until there are enough, or one of them; None if preempted before.

    Args:
        one: the name of a worker that makes one trial, whatever number of processes it takes.

    Raises:
        SearchError: several trials failed one after the other, or the only one.
        ConfigError: Optuna is not installed.
    """
    with extra("tune"):
        import optuna
        from optuna.trial import TrialState

    failures = 0
    study = _open_study(config)
    if one and _pick_up(study, one):
        return study
    ended = (TrialState.COMPLETE, TrialState.PRUNED)
    while len(study.get_trials(deepcopy=False, states=ended)) < search.trials:
        trial = study.ask()
        trial.set_user_attr(_WORKER, one)
        # With one seed, all workers would try the same values.
        seed = zlib.crc32(f"{search.seed}/{trial.number}".encode())
        study.sampler = optuna.samplers.TPESampler(seed=seed)
        try:
            study.tell(trial, run_trial(trial, search, overrides, notice))
            failures = 0
        except optuna.TrialPruned:
            study.tell(trial, state=TrialState.PRUNED)
            failures = 0
        except InterruptedError:
            _put_back(study, trial)
            return None
        except Exception as error:
            failures += 1
            _note_failure(study, trial, error)
            if one or failures == FAILURES:
                many = "the trial" if one else f"{failures} consecutive trials"
                raise SearchError(
                    f"{many} failed: the errors are above and in {config.run_dir}/study.log; start again once"
                    " they are fixed"
                ) from None
        if one:
            break
    return study


def _open_study(config: TrainConfig) -> optuna.Study:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    config.run_dir.mkdir(parents=True, exist_ok=True)
    file = str(config.run_dir / "study.log")
    return optuna.create_study(
        storage=JournalStorage(JournalFileBackend(file, lock_obj=JournalFileOpenLock(file))),
        study_name="search",
        load_if_exists=True,
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=config.evaluate_every),
    )


def _pick_up(study: optuna.Study, worker: str) -> bool:
    """Put back trials in which this worker was killed; returns whether it has ended one before."""
    from optuna.trial import TrialState

    mine = [trial for trial in study.get_trials(deepcopy=False) if trial.user_attrs.get(_WORKER) == worker]
    for trial in mine:
        if trial.state == TrialState.RUNNING:
            _put_back(study, trial)
    return any(trial.state in {TrialState.COMPLETE, TrialState.PRUNED} for trial in mine)


def _note_failure(study: optuna.Study, trial: optuna.Trial, error: Exception) -> None:
    """Mark a trial as failed, with the reason."""
    from optuna.trial import TrialState

    reason = _reason(error)
    if not isinstance(error, OSError | ValueError | ArithmeticError):
        traceback.print_exception(error)
    log_line(f"trial {trial.number} failed: {reason}; settings: {json.dumps(trial.params)}")
    trial.set_user_attr(_ERROR, reason)
    study.tell(trial, state=TrialState.FAIL)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _put_back(study: optuna.Study, trial: optuna.Trial | optuna.trial.FrozenTrial) -> None:
    """Let the next worker continue a trial."""
    from optuna.trial import TrialState

    study.tell(trial.number, state=TrialState.FAIL)
    attributes = {name: value for name, value in trial.user_attrs.items() if name == _RUN_DIR}
    study.enqueue_trial(trial.params, user_attrs=attributes)


def _settings(values: Mapping[str, object]) -> list[str]:
    return [f"{name}={json.dumps(value)}" for name, value in values.items()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Search; returns 0, 1 if trials fail, 2 for a wrong search, 75 if preempted: then run it again."""
    parser = argparse.ArgumentParser(
        prog="python -m trainyard_train.tune", description="Search for hyperparameters with Optuna."
    )
    parser.add_argument("search", help="a YAML file, or its content in flow style: {…}")
    parser.add_argument("--one", default="", metavar="NAME", help="run only the trial of this name")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args(arguments)
    try:
        search, config = load_search(options.search, options.set)
        notice = listen(config.timeouts.until_exit())
        startup.defer_compiler()
        study = search_for(search, config, options.set, notice, one=options.one)
    except RefusalError as error:
        return log_refusal(error)
    if study is None:
        return EXIT_PREEMPTED
    from optuna.trial import TrialState

    if not study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,)):  # a pruned one has a value too
        log_line(f"no trial has finished yet; see {config.run_dir}/study.log")
        return 0
    sys.stdout.write(json.dumps(_write_best(study, config.run_dir)) + "\n")
    return 0


def _write_best(study: optuna.Study, folder: Path) -> dict[str, object]:
    """Write `best.json`, again if another worker came to a better end meanwhile; returns what is in it."""
    staged = folder / f"best.{os.getpid()}.{socket.gethostname()}.tmp"
    written: dict[str, object] = {}
    while (best := _entry(study.best_trial)) != written:
        staged.write_text(json.dumps(best, indent=1) + "\n")
        staged.replace(folder / "best.json")
        written = best
    return written


def _entry(trial: optuna.trial.FrozenTrial) -> dict[str, object]:
    return {"loss": trial.value, "settings": trial.params, "trial": trial.number}


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # threads that wait for signals do not end by themselves
