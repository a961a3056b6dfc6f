"""The collectives' backend and network: chosen, measured, with a warning if nodes have a faster network."""

from pathlib import Path

import pytest
import torch

from trainyard_train.config_base import ConfigError
from trainyard_train.parallelism import fabric
from trainyard_train.parallelism.fabric import choose, measure, port_rates, refused_network

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def test_the_backend_follows_the_device_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (choose("auto", CPU).backend, choose("auto", CPU).why) == ("gloo", "this process sees no GPU")
    assert (choose("auto", GPU).backend, choose("auto", GPU).why) == ("nccl", "NCCL, since there is a GPU")
    assert choose("gloo", GPU).backend == "gloo"
    monkeypatch.setattr(torch.version, "hip", "7.0")
    assert "RCCL" in choose("auto", GPU).why
    with pytest.raises(ConfigError, match="backend: got 'nccl', but this process sees no GPU"):
        choose("nccl", CPU)


def test_mpi_is_refused_where_pytorch_was_built_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_mpi_available", lambda: False)
    with pytest.raises(
        ConfigError, match=r"backend: got 'mpi', but .* without MPI, as its wheels .*USE_MPI=1"
    ):
        choose("mpi", CPU)
    monkeypatch.setattr(torch.distributed, "is_mpi_available", lambda: True)
    assert choose("mpi", CPU).backend == "mpi"


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


def verdict_of(monkeypatch: pytest.MonkeyPatch, gigabytes: float, backend: str, nodes: list[str]) -> str:
    moved = 2 * (len(nodes) - 1) / len(nodes) * (4 << 20)
    monkeypatch.setattr(fabric, "_time", lambda values: moved / (gigabytes * 1e9))
    found = measure(CPU, backend, nodes)
    assert found.gigabytes_per_second == pytest.approx(gigabytes)
    assert found.fabric_unused == found.verdict.startswith("the fabric is not in use")
    return found.verdict


def test_a_fabric_that_is_not_in_use_is_reported(monkeypatch: pytest.MonkeyPatch, devices: Path) -> None:
    slow = verdict_of(monkeypatch, 1.2, "nccl", TWO_NODES)
    assert "not in use: 1.2 of 50.0 GB/s" in slow
    assert "NCCL_DEBUG=INFO" in slow
    assert verdict_of(monkeypatch, 40, "nccl", TWO_NODES).startswith(
        "the fabric is in use: 40.0 of 50.0 GB/s"
    )
    assert "also where there is a fabric" in verdict_of(monkeypatch, 1.2, "gloo", TWO_NODES)
    assert "MPI chooses the network itself" in verdict_of(monkeypatch, 1.2, "mpi", TWO_NODES)
    assert "one node" in verdict_of(monkeypatch, 1.2, "nccl", ["a", "a"])


def test_an_nccl_error_counts_as_a_network_error_only_by_its_text() -> None:
    for text in ("Failed to initialize any NET plugin", "Error: network AWS Libfabric not found."):
        assert refused_network(torch.distributed.DistBackendError(f"NCCL error\n{text}"))
        assert refused_network(RuntimeError(text)) is None
    assert refused_network(torch.distributed.DistBackendError("NCCL error: remote process exited")) is None


def test_a_node_without_devices_uses_tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fabric, "port_rates", list)
    assert "no RDMA device" in verdict_of(monkeypatch, 1.2, "nccl", TWO_NODES)
