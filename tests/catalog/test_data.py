"""The catalogue's data files: each fits its schema, and they are consistent with each other."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import catalog
from catalog import Cloud, DataError, Machine, cloud_store, store
from catalog.cloud_schema import (
    KubernetesFile,
    MachinesFile,
    NoticesFile,
    PricesFile,
    QuotasFile,
    RegionsFile,
)
from catalog.schema import AcceleratorsFile, DataFile, FabricsFile
from tests.tables import table

SCHEMAS: dict[str, type[DataFile]] = {
    "accelerators.yaml": AcceleratorsFile,
    "fabrics.yaml": FabricsFile,
    "kubernetes.yaml": KubernetesFile,
    "notices.yaml": NoticesFile,
    "quotas.yaml": QuotasFile,
    **{f"regions/{cloud}.yaml": RegionsFile for cloud in catalog.clouds()},
    **{f"machines/{cloud}.yaml": MachinesFile for cloud in catalog.clouds()},
    **{f"prices/{cloud}.yaml": PricesFile for cloud in catalog.clouds()},
}
DATA = Path(catalog.__file__).parent / "data"
MACHINES = catalog.machines()


def text(path: str) -> str:
    return DATA.joinpath(path).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", SCHEMAS)
def test_a_data_file_fits_its_schema_and_uses_every_source_that_it_names(path: str) -> None:
    store.load(path, SCHEMAS[path])
    raw = yaml.safe_load(text(path))
    rows = str({key: value for key, value in raw.items() if key != "sources"})
    assert [key for key in raw["sources"] if f"'{key}'" not in rows] == []


def test_every_data_file_has_a_schema() -> None:
    found = {path.relative_to(DATA).as_posix() for path in DATA.glob("**/*.yaml")}
    assert found == set(SCHEMAS)


@pytest.mark.parametrize("path", SCHEMAS)
def test_an_unknown_key_is_refused(path: str) -> None:
    raw = yaml.safe_load(text(path)) | {"colour": "blue"}
    with pytest.raises(DataError, match="colour"):
        store.parse(raw, SCHEMAS[path])


@pytest.mark.parametrize("path", [path for path in SCHEMAS if path.startswith("prices/")])
def test_a_price_without_date_source_or_amount_is_refused(path: str) -> None:
    breaks: list[tuple[Callable[[dict[str, Any]], object], str]] = [
        (lambda raw: raw["prices"][0].pop("source"), "source"),
        (lambda raw: raw["prices"][0].update(source="hearsay"), "hearsay"),
        (lambda raw: next(iter(raw["sources"].values())).pop("date"), "date"),
        (lambda raw: [raw["prices"][0].pop(key, None) for key in ("on_demand", "spot")], "on_demand, spot"),
        (lambda raw: raw["prices"][0].update(on_demand=0), "greater than 0"),
    ]
    for broken, message in breaks:
        raw = yaml.safe_load(text(path))
        broken(raw)
        with pytest.raises(DataError, match=message):
            store.parse(raw, PricesFile)


@pytest.mark.parametrize("cloud", catalog.clouds())
def test_no_name_comes_twice(cloud: Cloud) -> None:
    for path, key in ((f"machines/{cloud}.yaml", "machines"), ("fabrics.yaml", "fabrics")):
        names = [row["name"] for row in yaml.safe_load(text(path))[key]]
        assert len(names) == len(set(names))
    names = [row["name"] for row in yaml.safe_load(text(f"regions/{cloud}.yaml"))["regions"]]
    assert len(names) == len({name.lower() for name in names})


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_a_machine_names_only_what_the_catalogue_has(machine: Machine) -> None:
    if machine.accelerator:
        catalog.accelerator(machine.accelerator)
    catalog.fabric(machine.fabric)
    for region in machine.regions:
        assert catalog.region(machine.cloud, region).name == region


@pytest.mark.parametrize("cloud", catalog.clouds())
def test_a_price_is_of_a_machine_and_a_region_of_the_catalogue(cloud: Cloud) -> None:
    for row in cloud_store.price_rows(cloud):
        machine = catalog.machine(cloud, row.machine)
        # A price of a country applies in those of its regions that have the machine.
        regions = catalog.permitted(cloud, [row.region])
        assert any(machine.offered_in(region.name) is not False for region in regions)


@pytest.mark.parametrize("cloud", catalog.clouds())
def test_a_machine_has_one_price_per_region_and_day(cloud: Cloud) -> None:
    seen = [(row.machine, row.region, row.source.date) for row in cloud_store.price_rows(cloud)]
    assert len(seen) == len(set(seen))


def test_spot_is_cheaper_than_on_demand() -> None:
    rows = (row for cloud in catalog.clouds() for row in cloud_store.price_rows(cloud))
    both = [(row, row.on_demand, row.spot) for row in rows if row.on_demand and row.spot]
    assert both
    assert [row for row, on_demand, spot in both if spot >= on_demand] == []


def test_the_rows_that_every_target_needs_exist() -> None:
    rows = {row.name: row for row in MACHINES}
    for name, facts in table(__file__, "machines").items():
        row = rows[name]
        assert row.nics
        assert [row.accelerator, row.num_accelerators, row.nics.count, row.nics.gbps, row.fabric] == facts


def test_machines_of_a_rack_have_its_accelerators_processors_and_domain() -> None:
    racks = [(machine, catalog.find_rack(machine.accelerator or "")) for machine in MACHINES]
    found = {machine.name: rack for machine, rack in racks if rack}
    assert {"gb200-4x", "gb300-4x", "a4x-highgpu-4g", "p6e-gb200.36xlarge"} <= set(found)
    assert "Standard_ND128isr_NDR_GB200_v6" in found
    for machine, rack in racks:
        assert (catalog.fabric(machine.fabric).nvlink_domain is not None) == (rack is not None)
        if rack:
            assert (machine.num_accelerators, machine.architecture) == (rack.accelerators, rack.architecture)
            assert catalog.fabric(machine.fabric).nvlink_domain == rack.nvlink_domain == 72


def test_fabrics_of_the_same_network_but_another_count_are_separate_classes() -> None:
    counts = {
        name: catalog.fabric(name).resources["vpc.amazonaws.com/efa"] for name in ("efav2", "efav3", "efav4")
    }
    assert counts == {"efav2": 32, "efav3": 16, "efav4": 8}
    assert all("FI_PROVIDER!=efa" in catalog.fabric(name).refused for name in counts)


def test_a_fabric_requests_one_interface_per_nic_if_pods_see_the_nics() -> None:
    for machine in MACHINES:
        interfaces = catalog.fabric(machine.fabric).interfaces
        assert not interfaces or (machine.nics and len(interfaces) == machine.nics.count)


def test_a_checkpoint_has_15_seconds_on_gke_and_none_where_nothing_is_known() -> None:
    usable = {target: catalog.usable_notice_seconds(target) for target in catalog.notices()}
    assert usable == {"aws": 120, "gcp": 15, "azure": 30, "coreweave": 420, "local": 30}
    assert catalog.usable_notice_seconds("onprem") is None


NAMED = [row for row in MACHINES if row.cloud in ("aws", "gcp", "azure")]
"""Machines of the clouds whose machines policies recognize by the beginning of their names."""


def test_names_match_machines_with_accelerators() -> None:
    wrong = [row.name for row in NAMED if catalog.carries_accelerators(row.name) != bool(row.accelerator)]
    assert wrong == []


def test_names_match_machines_with_a_fabric_that_ends_at_the_zone() -> None:
    fast = {row.name for row in NAMED if row.fabric.startswith(("efa", "tcpxo", "roce"))}
    assert len(fast) > 10
    assert [name for name in sorted(fast) if not catalog.has_fabric_of_one_zone(name)] == []


def test_versions_of_kubernetes_are_those_of_the_operators_that_are_pinned() -> None:
    pinned = yaml.safe_load((DATA.parent.parent / "versions.yaml").read_text(encoding="utf-8"))
    found = store.load("kubernetes.yaml", KubernetesFile)
    versions = {each.name: each.version for each in found.operators}
    assert versions == {name: pinned["builds"][name]["version"] for name in versions}
    tested = pinned["kubernetes"].rpartition(".")[0]
    assert catalog.kubernetes_minors(tested) == ("1.34", "1.35")
    assert catalog.kubernetes_minors(tested, "coreweave") == ("1.35",)
    images = pinned["published_charts"]["cluster-autoscaler"]["images"]
    for minor in catalog.kubernetes_minors(tested):
        assert f":v{minor}." in images[f"autoscaler-{minor}"], "it is of the cluster's own version"


def test_no_family_counts_against_two_quotas() -> None:
    for cloud, rows in store.load("quotas.yaml", QuotasFile).quotas.items():
        counted = [(row.family, purchase) for row in rows for purchase in row.purchase]
        assert len(counted) == len(set(counted)), cloud
        for family, purchase in counted:
            assert catalog.find_quota(cloud, family, is_spot=purchase == "spot")
