"""The warnings of `trainyard up` about nodes that have not joined yet."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from infra.stackfile import Stack, load
from tests.infra.golden import CASES
from tests.infra.plan import stack_file
from tests.servers import QuietHandler, kubeconfig_of, serving
from trainyard.stack.access import api_from
from trainyard.stack.capacity import lacking, ready_nodes, report_missing_capacity
from trainyard.stack.session import Session


def node(pool: str, ready: str = "True") -> dict[str, Any]:
    condition = {"type": "Ready", "status": ready}
    return {
        "metadata": {"name": f"ip-{pool}", "labels": {"trainyard.dev/pool": pool}},
        "status": {"conditions": [condition]},
    }


NODES = [*(node("system") for _ in range(3)), node("spot"), node("spot", "Unknown"), node("preprocessing")]


class CapacityApiServer(QuietHandler):
    def do_GET(self) -> None:
        status = 200 if self.path.startswith("/api/v1/nodes") else 404
        self.respond(status, {"kind": "NodeList", "apiVersion": "v1", "items": NODES})


def kubeconfig(server: str) -> str:
    return yaml.safe_dump(kubeconfig_of(server))


@pytest.fixture
def reached() -> Iterator[str]:
    with serving(CapacityApiServer) as listening:
        yield kubeconfig(f"http://127.0.0.1:{listening.server_port}")


def test_nodes_that_are_ready_are_counted_by_pool(reached: str, tmp_path: Path) -> None:
    assert ready_nodes(api_from(reached, tmp_path)) == {"system": 3, "spot": 1, "preprocessing": 1}


@pytest.fixture
def aws() -> Stack:
    return load(stack_file("aws"))


def test_only_fixed_pools_can_lack_nodes(aws: Stack) -> None:
    output = list(lacking(aws, {"system": 3, "spot": 1, "preprocessing": 1}))
    assert [line.partition(" (")[0] for line in output] == [
        "pool spot: 1 of 4 nodes are ready",
        "pool preprocessing: 1 of 6 nodes are ready",
    ]
    assert not list(lacking(aws, {"system": 3, "spot": 4, "preprocessing": 6}))


def test_a_block_reports_when_its_nodes_start() -> None:
    (line,) = lacking(load(CASES / "efa-claims" / "aws.yaml"), {"system": 2})
    assert "from 2030-01-07T11:30:00Z to 2030-01-14T11:30:00Z" in line


class Outputs:
    def __init__(self, config: str) -> None:
        self._config = config

    def outputs(self, _stack: str, *, show_secrets: bool) -> dict[str, Any]:
        assert show_secrets
        return {"kubeconfig": self._config}


@pytest.mark.parametrize("server", ["", "http://127.0.0.1:9"])
def test_an_unreachable_cluster_does_not_fail_the_command(
    server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = Session("aws", console=Console())
    monkeypatch.setitem(session.__dict__, "engine", Outputs(kubeconfig(server) if server else "{}"))
    report_missing_capacity(session)
    assert "could not be read" in capsys.readouterr().out


def test_missing_nodes_are_reported(
    reached: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session = Session("aws", console=Console())
    monkeypatch.setitem(session.__dict__, "engine", Outputs(reached))
    report_missing_capacity(session)
    assert "pool spot: 1 of 4 nodes are ready (spot nodes start" in capsys.readouterr().out


def test_a_machine_type_that_is_not_sold_on_demand_is_reported() -> None:
    """Only a machine that the stack itself declares passes validation; its nodes would never join."""
    (warning,) = lacking(load(CASES / "declared" / "gcp.yaml"), {"system": 3})
    assert "pool gb200: 0 of 18 nodes" in warning
    assert "a4x-highgpu-4g is not sold as on-demand: write `capacity: reserved`" in warning
