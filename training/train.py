"""Train: `python -m training.train --config FILE [--set key.sub=value ...]`.

Alone on a laptop, under `torchrun`, or in a pod of Kubeflow Trainer. Exit codes: 0 finished, 1 failed, 2 the
configuration is wrong and nothing was started, 75 left on notice with a checkpoint committed.
"""

from __future__ import annotations

import time

_STARTED = time.time()  # before the imports that take long

import argparse  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import traceback  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import NoReturn  # noqa: E402

from training.config import ConfigError, TrainConfig, load_config  # noqa: E402
from training.preemption import EXIT_FAILED, EXIT_PREEMPTED, Notice  # noqa: E402

EXIT_WRONG_CONFIG = 2


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Check the configuration, then train; ends the process."""
    parser = argparse.ArgumentParser(prog="python -m training.train", description=__doc__)
    parser.add_argument("--config", type=Path, help="YAML file; see training/configs")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override one setting"
    )
    options = parser.parse_args(arguments)
    try:
        config = load_config(options.config, options.set)
    except ConfigError as error:
        sys.stderr.write("".join(f"training: {problem}\n" for problem in error.problems))
        sys.exit(EXIT_WRONG_CONFIG)
    if _needs_agent():
        module = ["-m", "training.train", *(sys.argv[1:] if arguments is None else arguments)]
        os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", *module])  # noqa: S606
    notice = Notice(config.timeouts.leave)
    notice.watch()
    if config.notices != "none":
        from training.clouds import Watch, metadata_of

        Watch(metadata_of(config.notices), notice.tell).start()
    _exit(_train(config, notice))


def _train(config: TrainConfig, notice: Notice) -> int:
    import torch

    from training import mesh, startup

    startup.defer_compiler()
    from training.trainer import Trainer

    torch.set_num_threads(config.threads)
    trainer = None
    try:
        mesh.adopt_launcher_settings(os.environ)
        with startup.deterministic():
            trainer = Trainer(config, mesh.join(config.timeouts, backend=config.backend), notice)
            finished = trainer.run(_STARTED)
    except ConfigError as error:
        sys.stderr.write("".join(f"training: {problem}\n" for problem in error.problems))
        return EXIT_WRONG_CONFIG
    except Exception as error:
        reason = _explain(error, mesh.is_lost_rank(error))
        if trainer:
            trainer.record_failure(reason)
            if trainer.saved_step is not None:
                reason += f"; the next start resumes from step {trainer.saved_step}"
        sys.stderr.write(f"training: {reason}\n")
        return EXIT_FAILED
    return 0 if finished else EXIT_PREEMPTED


def _explain(error: Exception, lost_rank: bool) -> str:
    """One line for what is known to go wrong; a traceback for the rest."""
    text = str(error).partition("\n")[0] if lost_rank else str(error)
    if lost_rank:
        return f"another rank is gone: {text}"
    if not isinstance(error, OSError | ValueError | ArithmeticError):
        traceback.print_exc()
    return f"{type(error).__name__}: {text}"


def _needs_agent() -> bool:
    """Whether this is a pod that is to run several processes, and torchrun has not started them yet."""
    return "RANK" not in os.environ and os.environ.get("PET_NPROC_PER_NODE", "1") != "1"


def _exit(code: int) -> NoReturn:
    """End without tearing the process group down: with a rank gone that would wait for its timeout."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
