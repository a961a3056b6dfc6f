"""The on-premises target's fake for rehearsals (`FAKE`): writes the kubeconfig of a made-up cluster.

To change the stack, it moves the last leaf switch to another spine, or grows a pool if there are no leaves.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from rehearsal.fake import Fake, RunningFake, Stack, grow
from rehearsal.leaks import SECRET


@contextmanager
def _start(stack: Stack, folder: Path) -> Iterator[RunningFake]:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(_kubeconfig(stack["target"]["cluster"]["context"])))
    yield RunningFake(variables={"KUBECONFIG": str(file)})


def _kubeconfig(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": {"server": "https://rehearsal.invalid:6443"}}],
        "users": [{"name": name, "user": {"token": f"{SECRET}-token"}}],
    }


def _change(stack: dict[str, Any]) -> Mapping[str, int]:
    """Move the last leaf to another spine, which updates its nodes; without leaves, grow a pool."""
    leaves = stack["target"].get("leaves")
    if not leaves:
        return grow(stack)
    leaves[-1]["spine"] = "another-spine"
    return {"update": sum(len(nodes) for nodes in leaves[-1]["nodes"].values())}


FAKE = Fake(_start, _change, sells_machines=False)
