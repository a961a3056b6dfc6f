"""The format of golden plans: no block is in two files, and any difference of a plan is found."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator

import pytest

from tests.infra import golden_plans
from tests.infra.golden import GOLDEN
from tests.infra.golden_plans import LAYERS, SHARED, Blocks, assert_golden, golden_plan, read, split, text_of

QUEUE = "trainyard:platform:Queues$kubernetes:kueue.x-k8s.io/v1beta2:WorkloadPriorityClass::normal"


@pytest.fixture(scope="module")
def plans() -> dict[str, Blocks]:
    return {name: golden_plan(name) for name in LAYERS}


@pytest.fixture(autouse=True)
def compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("UPDATE_GOLDEN", raising=False)


def in_full() -> Iterator[tuple[str, str]]:
    for name in (SHARED, *LAYERS):
        for urn, block in read(name)["adds"].items():
            yield urn, json.dumps(block)


def test_no_block_stands_in_two_files() -> None:
    texts = [text for _, text in in_full() if len(text) >= golden_plans.SMALL]
    assert len(texts) > 200
    assert sorted({text for text in texts if texts.count(text) > 1}) == []


def test_a_file_repeats_nothing_of_the_layer_below(plans: dict[str, Blocks]) -> None:
    for name, layer in LAYERS.items():
        below = golden_plan(layer) if layer else {}
        assert {urn for urn in read(name)["adds"] if below.get(urn) == plans[name][urn]} == set()


def test_the_files_are_as_their_program_writes_them(plans: dict[str, Blocks]) -> None:
    for name, file in split(plans).items():
        assert text_of(file) == (GOLDEN / f"{name}.yaml").read_text()


@pytest.mark.parametrize("name", LAYERS)
def test_a_plan_that_is_the_golden_one_passes(plans: dict[str, Blocks], name: str) -> None:
    assert_golden(plans[name], name)


def test_a_value_that_differs_is_found_in_a_shared_block(plans: dict[str, Blocks]) -> None:
    changed = copy.deepcopy(plans["azure"])
    block = dict(changed[QUEUE])
    block["inputs"]["value"] += 1
    with pytest.raises(AssertionError, match=r"changed:\n.*::normal: \{inputs.value: 1001\}"):
        assert_golden(changed, "azure")


def test_a_new_or_missing_resource_is_found(plans: dict[str, Blocks]) -> None:
    fewer = {urn: block for urn, block in plans["gcp"].items() if urn != QUEUE}
    with pytest.raises(AssertionError, match=r"gone:\n- .*::normal$"):
        assert_golden(fewer, "gcp")
    with pytest.raises(AssertionError, match=r"new: \[new\]"):
        assert_golden({**plans["gcp"], "new": {}}, "gcp")


def test_what_one_target_alone_changes_is_written_into_its_file(plans: dict[str, Blocks]) -> None:
    changed = copy.deepcopy(plans)
    dict(changed["azure"][QUEUE])["inputs"]["value"] = 7
    before, after = split(plans), split(changed)
    assert [name for name in after if after[name] != before[name]] == ["azure"]
    assert after["azure"]["differs"][QUEUE] == {"inputs.value": 7}
