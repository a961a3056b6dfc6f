"""The command `python -m trainyard_train`: `demo`, `run`, `checkpoint`, `export` and `import`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from trainyard_train import script
from trainyard_train.checkpointing import inspect
from trainyard_train.checkpointing.checkpoint import DamagedError, FormatError
from trainyard_train.config_base import ConfigError
from trainyard_train.demo import command as demo
from trainyard_train.elasticity.agent import log_refusal
from trainyard_train.observability.rank_log import log_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns 0 if all is well, 1 if something is damaged or differs, 2 for wrong use."""
    parser = argparse.ArgumentParser(prog="python -m trainyard_train")
    commands = parser.add_subparsers(required=True)
    demo.add_commands(commands)
    script.add_commands(commands)
    inspect.add_commands(commands)
    options = parser.parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except ConfigError as error:
        return log_refusal(error)
    except (DamagedError, FormatError, OSError) as error:
        log_line(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
