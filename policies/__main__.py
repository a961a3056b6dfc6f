"""The policy pack, as the engine starts it: `pulumi preview --policy-pack policies`."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType


def leave_out_sdk() -> None:
    """Let the protocol's modules be imported without the SDK around them, which is for programs.

    That takes 0.3 s, which a preview waits for.
    """
    spec = find_spec("pulumi")
    folders = spec.submodule_search_locations if spec else None
    for folder in folders or ():
        for name in ("pulumi", "pulumi.runtime", "pulumi.runtime.proto"):
            module = sys.modules[name] = ModuleType(name)
            module.__path__ = [str(Path(folder, *name.split(".")[1:]))]


# The engine runs this folder as a program: make it a package again, so that the pack works in any project.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

if __name__ == "__main__":
    leave_out_sdk()

    from policies.analyzer import serve
    from policies.pack import POLICIES

    serve(POLICIES)
