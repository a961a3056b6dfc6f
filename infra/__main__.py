"""The Pulumi program: the engine runs this folder to declare a stack and export its outputs."""

import gc
import os
import sys
from pathlib import Path

DEBUG = "TRAINYARD_ENGINE_DEBUG"
"""Environment variable that, with any value, enables the SDK's debug lines for `pulumi up --debug`."""
FOLDER = Path(__file__).resolve().parent


def import_from_the_root() -> None:
    """Put the repository on the path in place of this folder, whose `platform` would hide Python's."""
    sys.path[:] = [str(FOLDER.parent), *(entry for entry in sys.path if Path(entry).resolve() != FOLDER)]


def main() -> None:
    """Declare the stack; where something is wrong with it, show all of that and declare nothing."""
    # Nearly all objects live until the program ends, seconds later. With Python's default threshold, 700
    # objects, garbage collection would take a fifth of that time.
    gc.set_threshold(100_000)
    # pydantic would read the metadata of every installed package to find plugins; we use none.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    import_from_the_root()
    import pulumi

    from infra.errors import TrainyardError
    from infra.program import run
    from infra.sdk_overhead import reduce_overhead

    reduce_overhead(debug_lines=DEBUG in os.environ)

    try:
        outputs = run(pulumi.get_stack())
    except TrainyardError as error:
        raise pulumi.RunError(str(error)) from None  # which the SDK shows without a traceback
    for name, value in outputs.items():
        pulumi.export(name, value)


main()
