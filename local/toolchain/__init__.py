"""The toolchain: finds, downloads or builds everything that `versions.yaml` pins."""

from local.toolchain.artifact import Action, PlanStep
from local.toolchain.toolchain import Toolchain
from local.toolchain.versions import Versions

__all__ = ["Action", "PlanStep", "Toolchain", "Versions", "load_versions"]

load_versions = Versions.load
