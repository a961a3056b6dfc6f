"""The stand-in for Google Cloud judges inputs by the SDK's types, and names what is not named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rehearsal import sdk
from rehearsal.cloud import Resource, Typed, replacements
from rehearsal.google import OUTPUTS

ROUTER = {"network": "projects/p/global/networks/n", "region": "europe-west1"}


def problems(token: str, inputs: Mapping[str, Any]) -> list[tuple[str, str]]:
    return list(Typed(OUTPUTS).check(Resource(token, "training", inputs)))


def test_what_fits_the_types_is_taken() -> None:
    assert problems("gcp:compute/router:Router", ROUTER) == []


@pytest.mark.parametrize(
    ("inputs", "word"),
    [
        ({"netwrok": "n"}, "did you mean 'network'?"),
        ({**ROUTER, "region": ["europe-west1"]}, "a text is allowed"),
    ],
)
def test_what_does_not_is_refused_by_property(inputs: Mapping[str, Any], word: str) -> None:
    assert any(word in reason for _, reason in problems("gcp:compute/router:Router", inputs))


def test_what_must_be_there_is_asked_for() -> None:
    assert ("cluster", "is missing") in problems("gcp:container/nodePool:NodePool", {})


@pytest.mark.parametrize(
    ("token", "name"),
    [
        ("gcp:compute/network:Network", "name"),
        ("gcp:storage/bucket:Bucket", "name"),
        ("gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember", None),
        ("gcp:lustre/instance:Instance", None),
    ],
)
def test_a_name_is_made_up_where_the_provider_does_it(token: str, name: str | None) -> None:
    assert Typed(OUTPUTS).autoname(token) == name


def test_outputs_and_replacements_are_of_properties_that_the_sdk_knows() -> None:
    for token, outputs in OUTPUTS.items():
        assert outputs.keys() <= sdk.outputs_of(token).keys(), token
    for token, paths in replacements().items():
        if token.startswith("gcp:"):
            known, _ = sdk._names(sdk.arguments_of(token))
            assert {path.partition(".")[0] for path in paths} <= known.keys(), token
