"""Metadata of the distribution `trainyard-train`: its requirements are those of the lock files."""

from __future__ import annotations

from importlib.metadata import metadata, packages_distributions, requires

from engine.paths import REPOSITORY


def lines(name: str) -> list[str]:
    return (REPOSITORY / "requirements" / name).read_text().splitlines()


def test_its_requirements_are_those_that_the_lock_files_of_jobs_are_made_from() -> None:
    needed = requires("trainyard-train") or []
    assert [each for each in needed if "extra" not in each] == lines("training.in")
    for extra in ("deepspeed", "tracking"):
        suffix = f'; extra == "{extra}"'
        assert [each.removesuffix(suffix) for each in needed if suffix in each] == lines(f"{extra}.in")


def test_its_name_its_import_and_its_licence() -> None:
    assert metadata("trainyard-train")["License-Expression"] == "Apache-2.0"
    assert set(packages_distributions()["trainyard_train"]) == {"trainyard-train"}
