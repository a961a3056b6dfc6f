"""The collectives' backend and network: chosen, measured, with a warning if nodes have a faster network."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from trainyard_train.config_base import ConfigError
from trainyard_train.contract import EXIT_NO_FABRIC
from trainyard_train.elasticity.agent import combined_exit_code
from trainyard_train.parallelism import fabric
from trainyard_train.parallelism.fabric import choose, measure, port_rates, refused_network
from trainyard_train.trainer import Trainer

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def test_the_backend_follows_the_device_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (choose("auto", CPU).backend, choose("auto", CPU).why) == ("gloo", "this process sees no GPU")
    assert (choose("auto", GPU).backend, choose("auto", GPU).why) == ("nccl", "NCCL, since there is a GPU")
    assert choose("gloo", GPU).backend == "gloo"
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert "RCCL" in choose("auto", GPU).why
    with pytest.raises(ConfigError, match="backend: got 'nccl', but this process sees no GPU"):
        choose("nccl", CPU)


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write sysfs files of four NICs of 400 Gb/s, of which one is down."""
    for nic in range(4):
        port = tmp_path / f"mlx5_{nic}" / "ports" / "1"
        port.mkdir(parents=True)
        (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
        (port / "state").write_text("1: DOWN\n" if nic == 3 else "4: ACTIVE\n")
    monkeypatch.setattr(fabric, "port_rates", lambda: port_rates(tmp_path))
    return tmp_path


def test_active_ports_report_their_rate(devices: Path) -> None:
    assert port_rates(devices) == [50, 50, 50]
    assert port_rates(devices / "none") == []


TWO_NODES = ["a", "a", "a", "b", "b", "b"]


def verdict_of(
    monkeypatch: pytest.MonkeyPatch, gigabytes: float, backend: str, nodes: list[str], **environment: str
) -> str:
    moved = 2 * (len(nodes) - 1) / len(nodes) * (4 << 20)
    monkeypatch.setattr(fabric, "_time", lambda values: moved / (gigabytes * 1e9))
    found = measure(CPU, backend, nodes, environment)
    assert found.gigabytes_per_second == pytest.approx(gigabytes)
    unused = found.share is not None and found.share < fabric.ENDS
    assert unused == found.verdict.startswith("the fabric is not in use")
    return found.verdict


CLASS = {"TRAINYARD_FABRIC": "ib-ndr nccl:nics=8 nccl:gbps=400", "NCCL_NET": "IB"}
EIGHT = [node for node in "ab" for _ in range(8)]


@pytest.mark.parametrize(
    ("gigabytes", "verdict"),
    [
        (421.0, "the fabric is in use: 421.0 of 400.0 GB/s"),
        (200.0, "the fabric is slow: 200.0 of 400.0 GB/s"),  # half the NICs, or no GPUDirect
        (48.0, "the fabric is not in use: 48.0 of 400.0 GB/s"),  # one NIC of eight
        (20.0, "the fabric is not in use"),  # TCP
    ],
)
def test_the_speed_is_judged_by_all_nics_of_the_class(
    monkeypatch: pytest.MonkeyPatch, gigabytes: float, verdict: str
) -> None:
    """Also where the node has no RDMA devices in /sys, as with TCPXO."""
    monkeypatch.setattr(fabric, "port_rates", list)
    assert verdict_of(monkeypatch, gigabytes, "nccl", EIGHT, **CLASS).startswith(verdict)
    half = {**CLASS, "TRAINYARD_ACCELERATORS_PER_NODE": "16"}
    assert "of 200.0 GB/s" in verdict_of(monkeypatch, gigabytes, "nccl", EIGHT, **half)
    rack = {**CLASS, "TRAINYARD_FABRIC": "x nccl:nics=8 nccl:gbps=400 nccl:nvlink=72"}
    for unjudged in (rack, {**CLASS, "NCCL_NET": "Socket"}):
        monkeypatch.setattr(fabric, "port_rates", lambda: [400.0])
        assert "is no measure" in verdict_of(monkeypatch, gigabytes, "nccl", EIGHT, **unjudged)


def test_without_a_class_the_nodes_devices_are_the_measure(
    monkeypatch: pytest.MonkeyPatch, devices: Path
) -> None:
    slow = verdict_of(monkeypatch, 20.0, "nccl", TWO_NODES)
    assert "not in use: 20.0 of 150.0 GB/s" in slow
    assert "NCCL_DEBUG=INFO" in slow
    assert verdict_of(monkeypatch, 120, "nccl", TWO_NODES).startswith("the fabric is in use: 120.0 of 150.0")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    assert "gloo uses TCP over eth7" in verdict_of(monkeypatch, 1.2, "gloo", TWO_NODES)
    assert "one node" in verdict_of(monkeypatch, 1.2, "nccl", ["a", "a"])


def test_a_job_that_leaves_its_fabric_ends_with_the_hooks_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = {"network": ["IB, 1 NICs"], "ends": ["b: NCCL uses 1 of 8 NICs (mlx5_0)"], "warns": ["a: slow"]}
    recorded: dict[str, object] = {}
    mesh = SimpleNamespace(
        choice=choose("auto", GPU),
        world_size=2,
        device=CPU,
        node="a",
        is_rank0=True,
        gather=lambda key, own: [own],
    )
    trainer = SimpleNamespace(mesh=mesh, _record=lambda event, **values: recorded.update(values))
    monkeypatch.setattr(fabric, "measure", lambda *asked: fabric.Measured(1.0, 1.0, "measured"))
    monkeypatch.setattr(fabric, "merged", lambda reports: report)
    with pytest.raises(fabric.NoFabricError, match="b: NCCL uses 1 of 8 NICs") as refused:
        Trainer._look_at_fabric(trainer, ["a", "b"])  # type: ignore[arg-type]
    assert refused.value.exit_code == EXIT_NO_FABRIC == combined_exit_code({EXIT_NO_FABRIC, 1}) == 192
    assert recorded["ends"] == report["ends"]
    assert "training: a: slow\n" in capsys.readouterr().err


def test_an_nccl_error_counts_as_a_network_error_only_by_its_text() -> None:
    for text in ("Failed to initialize any NET plugin", "Error: network AWS Libfabric not found."):
        assert refused_network(torch.distributed.DistBackendError(f"NCCL error\n{text}"))
        assert refused_network(RuntimeError(text)) is None
    assert refused_network(torch.distributed.DistBackendError("NCCL error: remote process exited")) is None


def test_a_rate_that_nobody_knows_judges_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric, "port_rates", list)
    assert "is not known" in verdict_of(monkeypatch, 1.2, "nccl", TWO_NODES)
