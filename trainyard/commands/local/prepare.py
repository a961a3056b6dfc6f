from typing import Annotated

import typer

from trainyard.commands.options import StackName
from trainyard.stack.session import Session


def prepare(
    stack: StackName = "",
    package: Annotated[bool, typer.Option(help="Also for programs that use the component package.")] = False,
    tests: Annotated[bool, typer.Option(help="Also for Trainyard's own tests.")] = False,
) -> None:
    """Install, download or build everything that `up` needs; start nothing."""
    from trainyard.stack.change import prepare_host

    prepare_host(Session(stack), for_package=package, for_tests=tests)
