"""Metadata of the distribution `trainyard-train`."""

from __future__ import annotations

from importlib.metadata import metadata, packages_distributions


def test_its_name_its_import_and_its_licence() -> None:
    assert metadata("trainyard-train")["License-Expression"] == "Apache-2.0"
    assert set(packages_distributions()["trainyard_train"]) == {"trainyard-train"}
