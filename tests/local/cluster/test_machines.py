"""Command lines and config files of the cluster's daemons, compared with a golden file."""

import json
from pathlib import Path

import pytest

from local.cluster.addresses import AddressPlan, allocate
from local.cluster.config import ClusterConfig, NodeConfig
from local.cluster.context import ClusterContext
from local.cluster.control_plane import EmbeddedControlPlane
from local.cluster.credentials import Credentials
from local.cluster.layout import Layout
from local.cluster.machine import InitSpec
from local.cluster.node import NodeMachine
from tests.infra.golden import assert_matches

GOLDEN = Path(__file__).parent / "golden" / "machines.json"


class AnyArtifact:
    def path(self, name: str) -> Path:
        return Path("/artifacts", name)


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterContext:
    for module in ("control_plane", "node"):
        monkeypatch.setattr(f"local.cluster.{module}.program", lambda name: f"/programs/{name}")
    nodes = tuple(NodeConfig(name=name, pool="spot") for name in ("spot-0", "spot-1"))
    config = ClusterConfig(name="local", kubernetes_version="v1.35.4", nodes=nodes, data_dir="/data")
    layout = Layout(tmp_path / "local" / "run")
    plan = AddressPlan.of(config, allocate(["spot-0", "spot-1"], {}))
    return ClusterContext(layout, plan, Credentials(layout.pki, plan), AnyArtifact())


def specs(context: ClusterContext) -> dict[str, InitSpec]:
    node = NodeMachine("spot-1", context).spec("pause:1")
    return {"control": EmbeddedControlPlane(context).spec("spot-0"), "spot-1": node}


def described(context: ClusterContext, tmp_path: Path) -> dict[str, object]:
    machines = {name: json.loads(spec.to_json()) for name, spec in specs(context).items()}
    for machine in machines.values():
        del machine["inputs"]
    files = [path for path in context.layout.run.rglob("*") if path.suffix in {".yaml", ".toml", ".conflist"}]
    texts = {str(path): path.read_text() for path in sorted(files)}
    text = json.dumps({"machines": machines, "files": texts}, indent=1, sort_keys=True)
    result: dict[str, object] = json.loads(text.replace(str(tmp_path), "/state"))
    return result


def test_command_lines_and_config_files_are_the_golden_ones(context: ClusterContext, tmp_path: Path) -> None:
    assert_matches(json.dumps(described(context, tmp_path), indent=1, sort_keys=True) + "\n", GOLDEN)


def test_a_machine_changes_with_a_config_file_that_its_daemons_read(context: ClusterContext) -> None:
    spec = specs(context)["spot-1"]
    before = spec.to_json()
    file = context.layout.node("spot-1") / "kubelet.yaml"
    file.write_text(file.read_text() + "maxPods: 7\n")
    assert spec.to_json() != before


def test_a_machine_is_the_same_when_the_audit_log_has_grown(context: ClusterContext) -> None:
    spec = specs(context)["control"]
    before = spec.to_json()
    words = [word for daemon in spec.daemons for word in daemon.argv]
    log = next(word for word in words if word.startswith("--audit-log-path="))
    Path(log.partition("=")[2]).write_text("{}")
    assert spec.to_json() == before
