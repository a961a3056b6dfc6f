"""Golden plans in layers: shared resources once, and for each plan its differences.

`tests/golden/platform.yaml` has the resources that several targets share. The golden file of a plan names the
layer below it (`of`), the resources of that layer that the plan lacks (`lacks`; an excerpt names those that
it `has`), values that differ (`differs`, by path as in `tests/patches.py`; null: absent), and the resources
that the plan `adds`. A block may be `like` another one of its type, of the same file or a layer below, `but`
with other values.

`UPDATE_GOLDEN=1 pytest …` stores the plans of the tests that run, and writes all layers at the end; other
plans are not changed. Review what it has written. After a merge conflict, take the files of one side before
you run it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from functools import cache
from itertools import chain
from typing import Any

import yaml

from tests.infra.golden import GOLDEN
from tests.patches import changed, difference

Block = Mapping[str, Any]
Blocks = dict[str, Block]
"""URN → the part of the resource that the file has; also `outputs`."""

SHARED = "platform"
TARGETS = ("aws", "azure", "coreweave", "gcp", "local", "onprem")
LAYERS = {
    **dict.fromkeys(TARGETS, SHARED),
    "aws-dev": "aws",
    "gcp-tpu": "gcp",
    "hybrid": "",
    "autoscaled-aws": "aws",
    "racks-coreweave": "coreweave",
    "racks-gcp": "gcp",
    "racks-onprem": "onprem",
}
"""Plan → the layer below it; a layer precedes those above it."""
EXCERPTS = ("autoscaled-aws", "racks-coreweave", "racks-gcp", "racks-onprem")
NEW = GOLDEN.parent.parent / ".trainyard" / "golden"
ALIKE = 0.4
SMALL = 500
"""A block of SMALL characters or more is written as `like` another if that takes at most this part of it."""


def assert_golden(blocks: Mapping[str, Block], name: str) -> None:
    """Compare a plan with its golden file and the layers below; `UPDATE_GOLDEN=1` stores it for `write`."""
    found = json.loads(json.dumps(blocks, sort_keys=True))
    if os.environ.get("UPDATE_GOLDEN"):
        NEW.mkdir(parents=True, exist_ok=True)
        (NEW / f"{name}.json").write_text(json.dumps(found))
        return
    golden = golden_plan(name)
    changes = {urn: difference(golden[urn], found[urn]) for urn in golden.keys() & found.keys()}
    report = {
        "gone": sorted(golden.keys() - found.keys()),
        "new": sorted(found.keys() - golden.keys()),
        "changed": {urn: change for urn, change in sorted(changes.items()) if change},
    }
    assert not any(report.values()), f"{name} is not the plan that was read in review\n{text_of(report)}"


def golden_plan(name: str) -> Blocks:
    """Return a golden plan in full, or the layer that targets share."""
    return _whole(name, read(name), golden_plan(LAYERS[name]) if LAYERS.get(name) else {})


@cache
def read(name: str) -> Mapping[str, Any]:
    """Return the content of a golden file."""
    found: Mapping[str, Any] = yaml.load((GOLDEN / f"{name}.yaml").read_text(), Loader=yaml.CSafeLoader)
    return found


def _whole(name: str, file: Mapping[str, Any], below: Blocks) -> Blocks:
    unchanged = file["has"] if name in EXCERPTS else below.keys() - set(file.get("lacks", ()))
    blocks = {urn: below[urn] for urn in unchanged}
    blocks |= {urn: changed(below[urn], change) for urn, change in file.get("differs", {}).items()}
    adds = file.get("adds", {})
    full = below | _in_full({"adds": adds})
    return blocks | {
        urn: changed(full[block["like"]], block["but"]) if "like" in block else block
        for urn, block in adds.items()
    }


def write() -> None:
    """Rewrite all layers, with the plans that tests have stored."""
    new = {file.stem: json.loads(file.read_text()) for file in NEW.glob("*.json")}
    for name, file in split({name: new.get(name) or golden_plan(name) for name in LAYERS}).items():
        (GOLDEN / f"{name}.yaml").write_text(text_of(file))
    for name in new:
        (NEW / f"{name}.json").unlink()
    read.cache_clear()


def split(plans: Mapping[str, Blocks]) -> dict[str, dict[str, Any]]:
    """Return the golden files of the plans, and that of the shared layer."""
    wholes = {SHARED: _shared([plans[target] for target in TARGETS]), **plans}
    files = {SHARED: {"adds": _with_likes(wholes[SHARED], {})}}
    full = {"": {}, SHARED: _in_full(files[SHARED])}
    for name, layer in LAYERS.items():
        plan, below = plans[name], wholes.get(layer, {})
        files[name] = _file(name, plan, below, full[layer])
        unchanged = {urn: block for urn, block in full[layer].items() if plan.get(urn) == block}
        full[name] = unchanged | _in_full(files[name])
    return files


def _shared(plans: list[Blocks]) -> Blocks:
    """Return the resources of several targets in their most common form; in a tie, the first target's."""
    shared = {}
    for urn in dict.fromkeys(chain.from_iterable(plans)):
        found = [plan[urn] for plan in plans if urn in plan]
        texts = [json.dumps(block, sort_keys=True) for block in found]
        if len(found) > 1:
            ((most, _),) = Counter(texts).most_common(1)
            shared[urn] = found[texts.index(most)]
    return shared


def _file(name: str, plan: Blocks, below: Blocks, full: Blocks) -> dict[str, Any]:
    plan = dict(sorted(plan.items()))
    changes = {urn: difference(below[urn], block) for urn, block in plan.items() if urn in below}
    differs = {urn: change for urn, change in changes.items() if change and "" not in change}
    file: dict[str, Any] = {"of": LAYERS[name]} if LAYERS[name] else {}
    if name in EXCERPTS:
        file["has"] = sorted(urn for urn, change in changes.items() if not change)
    elif below:
        file["lacks"] = sorted(below.keys() - plan.keys())
    file["differs"] = differs
    own = {urn: block for urn, block in plan.items() if changes.get(urn, {"": None}).keys() == {""}}
    return file | {"adds": _with_likes(own, full)}


def _with_likes(own: Blocks, full: Blocks) -> Blocks:
    """Return each block in full, or by its differences from a full block of its type."""
    shown: Blocks = {}
    full = dict(full)
    for urn, block in sorted(own.items()):
        kind = f"{urn.partition('::')[0]}::" if _size(block) >= SMALL else urn
        near = {each: difference(full[each], block) for each in full if each.startswith(kind)}
        best = min(near, key=lambda each: (_size(near[each]), each), default="")
        if best and "" not in near[best] and _size(near[best]) + len(best) <= ALIKE * _size(block):
            shown[urn] = {"like": best, "but": near[best]}
        else:
            shown[urn] = full[urn] = block
    return shown


def _in_full(file: Mapping[str, Any]) -> Blocks:
    return {urn: block for urn, block in file["adds"].items() if "like" not in block}


def _size(data: object) -> int:
    return len(json.dumps(data))


SHORT, WIDTH = 90, 150
"""Most characters of a value that is written on one line, and of a line."""


class _Dumper(yaml.CSafeDumper):
    """Writes short blocks on one line, and texts of several lines as literals."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _mapping(dumper: yaml.CSafeDumper, data: dict[str, Any]) -> yaml.MappingNode:
    return dumper.represent_mapping("tag:yaml.org,2002:map", data, flow_style=_short(data))


def _sequence(dumper: yaml.CSafeDumper, data: list[Any]) -> yaml.SequenceNode:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=_short(data))


def _text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


def _short(data: object) -> bool:
    text = json.dumps(data)
    return len(text) <= SHORT and "\\n" not in text


_Dumper.add_representer(dict, _mapping)
_Dumper.add_representer(list, _sequence)
_Dumper.add_representer(str, _text)


def text_of(file: Mapping[str, Any]) -> str:
    """Return the text of a golden file."""
    shown = {key: value for key, value in file.items() if value or key == "has"}
    return yaml.dump(shown, Dumper=_Dumper, width=WIDTH, sort_keys=False)
