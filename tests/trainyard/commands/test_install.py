"""The commands of a team's member import only packages of the lock for members."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import packages_distributions

from engine.paths import REPOSITORY

OF_MEMBERS = ("jobs", "source")
IMPORTS = """
import importlib, sys
missing, modules = (words.split(",") for words in sys.argv[1:])

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NotInstalled())
for name in modules:
    importlib.import_module(name)
"""
OURS = {"trainyard", "trainyard-train"}


def test_they_import_nothing_that_their_lock_does_not_have() -> None:
    """Optional imports of libraries are hidden too, since an install from the lock does not have them."""
    lock = (REPOSITORY / "requirements" / "member.txt").read_text()
    locked = OURS | set(re.findall(r"(?m)^([a-z0-9._-]+)==", lock))
    missing = [
        module
        for module, distributions in packages_distributions().items()
        if not locked & {name.lower().replace("_", "-") for name in distributions}
    ]
    assert {"pulumi", "grpc", "boto3", "cryptography", "torch"} & set(missing) >= {"pulumi", "boto3"}
    modules = [
        "trainyard.cli",
        "trainyard.commands.member",
        "trainyard.commands.run",
        "trainyard.commands.start",
        "trainyard.commands.login",
    ]
    modules += [
        f"trainyard.{part}.{path.stem}"
        for part in OF_MEMBERS
        for path in (REPOSITORY / "trainyard" / part).glob("[a-z]*.py")
        if path.stem not in ("summary", "spot")
    ]
    command = [sys.executable, "-c", IMPORTS, ",".join(missing), ",".join(modules)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
