import sys
from typing import Annotated

import typer


def explain(
    key: Annotated[
        str, typer.Argument(help="Path of a key: pools, pools.nodes, target.network.nat, job.env.")
    ],
) -> None:
    """Explain a key of the stack file, or of a job file: type, defaults, an example, the policies that
    look at it, its meaning, and the keys below it.

    [dim]trainyard explain pools
    trainyard explain target.network.nat[/]
    """
    from engine.paths import Paths
    from trainyard.stack import explain as keys
    from trainyard.stack.schema import file_schema

    for line in keys.lines(keys.find(file_schema(), key), Paths.from_environment().repository / "stacks"):
        sys.stdout.write(f"{line}\n")
