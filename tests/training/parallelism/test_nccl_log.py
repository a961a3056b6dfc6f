"""NCCL's lines about its first communicator, read and compared with the fabric class."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import catalog
from tests.tables import table
from trainyard_train.parallelism import nccl_log
from trainyard_train.parallelism.fabric import Measured, merged, own_report
from trainyard_train.parallelism.nccl_log import FabricClass, parse, read, record

LOGS: Mapping[str, Any] = table(__file__, "nccl_logs")


def environment(fabric: str, network: str = "") -> dict[str, str]:
    """Return the variables of a pod of the class."""
    found = catalog.fabric(fabric)
    facts = {
        "nics": found.num_nics,
        "gbps": found.nic_gbps,
        "nvlink": found.nvlink_domain,
        "version": found.nccl,
    }
    said = {**facts, "mismatch": found.mismatch}
    words = [f"nccl:{name}={value}" for name, value in said.items() if value]
    network = network or found.environment.get("NCCL_NET", "")
    return {
        "TRAINYARD_FABRIC": " ".join([fabric, "libibverbs.so.1=libibverbs1", *words]),
        "NCCL_NET": network,
    }


@pytest.mark.parametrize("name", LOGS)
def test_a_log_has_its_verdict_and_names_the_node_and_the_nics(
    name: str, tmp_path: Path, monkeypatch: Any
) -> None:
    assert len(LOGS) >= 20
    case = LOGS[name]
    monkeypatch.setattr(nccl_log, "_file", lambda: tmp_path / "nccl.log")
    (tmp_path / "nccl.log").write_text(case["log"])
    healthy = Measured(400.0, 400.0, "the fabric is in use")
    variables = environment(case["fabric"], case.get("network", ""))
    found = merged([own_report(healthy, "node-7", is_rank0=True, environment=variables)])
    for key in ("ends", "warns"):
        asked = case.get(key, [])
        assert len(found[key]) == len(asked), found
        for line, part in zip(found[key], asked, strict=True):
            assert line.startswith("node-7: ") and part in line
    assert found["network"] == [f"node-7: {case['shown']}" if "shown" in case else found["network"][0]]
    assert not (tmp_path / "nccl.log").exists()


def test_nothing_is_compared_where_the_pod_has_no_class_or_asks_for_tcp() -> None:
    assert FabricClass.of({}) is None
    assert FabricClass.of({"TRAINYARD_FABRIC": "none", "NCCL_NET": "IB"}) is None
    assert FabricClass.of({**environment("ib-ndr"), "NCCL_NET": "socket"}) is None
    assert parse("a log of something else\n") is None


def test_the_first_rank_of_a_node_records_unless_the_job_reads_the_log_itself(tmp_path: Path) -> None:
    def recorded(**more: str) -> dict[str, str]:
        variables = {**environment("ib-ndr"), **more}
        before = dict(variables)
        record(variables)
        return {name: value for name, value in variables.items() if name not in before}

    assert recorded(LOCAL_RANK="0") == {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET",
        "NCCL_DEBUG_FILE": str(nccl_log._file()),
    }
    assert recorded(LOCAL_RANK="1") == recorded(NCCL_DEBUG="WARN") == recorded(NCCL_NET="Socket") == {}
    assert read() is None


def test_a_slow_fabric_ends_the_job_or_warns_once() -> None:
    def report(share: float, fabric: str = "ib-ndr", *, is_rank0: bool = True) -> str:
        slow, variables = Measured(1, 1, f"at {share}", share), environment(fabric) if fabric else {}
        return own_report(slow, "a", is_rank0=is_rank0, environment=variables)

    assert merged([report(0.1), report(0.1, is_rank0=False)])["ends"] == ["a: at 0.1"]
    assert merged([report(0.5)]) == {"network": [], "ends": [], "warns": ["a: at 0.5"]}
    for only_warned in ("roce-coreweave-nvl72", ""):  # by its class; without a class, outside of our runtimes
        assert merged([report(0.1, only_warned)])["warns"] == ["a: at 0.1"]
    assert merged([report(1.0)])["warns"] == []
