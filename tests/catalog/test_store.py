"""Look-ups in the catalogue, and the error with the nearest names if nothing is found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import catalog
from catalog import Cloud, MachineFilters, UnknownNameError
from tests.tables import table

MACHINES = catalog.machines()


def test_a_file_is_read_once_and_gives_the_same_object() -> None:
    assert catalog.machine("aws", "p5en.48xlarge") is catalog.machine("aws", "p5en.48xlarge")


@pytest.mark.parametrize(("cloud", "written", "meant"), table(__file__, "misspelt"))
def test_a_wrong_machine_name_is_refused_with_the_nearest_one(cloud: Cloud, written: str, meant: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        catalog.machine(cloud, written, path="pools[1].machine")
    problem = caught.value
    assert problem.path == "pools[1].machine"
    assert problem.got == repr(written)
    assert meant in problem.allowed
    assert problem.fix == f"did you mean {meant!r}?"


def test_a_name_like_no_other_is_refused_with_the_list() -> None:
    with pytest.raises(UnknownNameError) as caught:
        catalog.machine("coreweave", "zzz")
    assert "gd-8xh100ib-i128" in caught.value.allowed
    assert "did you mean" not in caught.value.fix


def test_wrong_accelerators_fabrics_and_regions_are_refused_with_alternatives_too() -> None:
    for look_up, meant in (
        (lambda: catalog.accelerator("h-100"), "h100"),
        (lambda: catalog.fabric("efa-v3"), "efav3"),
        (lambda: catalog.region("aws", "us-east-9"), "us-east"),
    ):
        with pytest.raises(UnknownNameError, match=f"did you mean '{meant}"):
            look_up()


def test_the_simulated_accelerator_is_known_and_marked_as_simulated() -> None:
    simulated = catalog.accelerator("simulated")
    assert simulated.simulated
    assert simulated.resource == "nvidia.com/gpu"
    assert simulated.memory_gib is None
    assert [row.name for row in catalog.accelerators() if row.simulated] == ["simulated"]


@given(
    wanted=st.fixed_dictionaries(
        {},
        optional={
            "cloud": st.sampled_from(catalog.clouds()),
            "accelerator": st.sampled_from([row.name for row in catalog.accelerators()]),
            "num_accelerators": st.sampled_from([0, 1, 4, 8]),
            "fabric": st.sampled_from([row.name for row in catalog.fabrics()]),
            "architecture": st.sampled_from(["amd64", "arm64"]),
        },
    )
)
def test_filters_give_exactly_the_machines_that_match_all_of_them(wanted: MachineFilters) -> None:
    found = catalog.machines(**wanted)
    assert found == tuple(
        row for row in MACHINES if all(getattr(row, key) == value for key, value in wanted.items())
    )


def test_filters_by_region_and_capacity_drop_only_machines_known_not_to_be_offered() -> None:
    in_stockholm = {row.name for row in catalog.machines(cloud="aws", region="eu-north-1")}
    assert "p5en.48xlarge" in in_stockholm
    assert "p6-b300.48xlarge" not in in_stockholm
    assert "g2-standard-8" in {row.name for row in catalog.machines(cloud="gcp", region="us-central1")}
    blocks = {row.name for row in catalog.machines(cloud="aws", purchase="capacity-block")}
    assert "p5.48xlarge" in blocks
    assert "g5.xlarge" not in blocks


def test_an_offer_is_yes_no_or_unknown() -> None:
    assert catalog.machine("aws", "p5en.48xlarge").offered_in("us-east-2") is True
    assert catalog.machine("aws", "p5en.48xlarge").offered_in("eu-west-1") is False
    assert catalog.machine("gcp", "a4x-highgpu-4g").offered_in("us-central1") is None
    assert catalog.machine("aws", "p5en.48xlarge").offered_in("us-gov-west-1") is None
    for name in ("g2-standard-4", "g2-standard-8", "g2-standard-48"):
        assert catalog.machine("gcp", name).offered_in("us-west4") is True
        assert catalog.machine("gcp", name).offered_in("us-east5") is False


def test_a_capacity_type_is_known_by_region_where_the_price_list_has_it() -> None:
    tpu = catalog.machine("gcp", "ct6e-standard-4t")
    assert tpu.ways == ("on-demand", "spot", "flex-start", "reservation")
    assert tpu.ways_in("europe-west4") == tpu.ways
    assert tpu.ways_in("southamerica-west1") == ("on-demand", "flex-start", "reservation")
    assert tpu.ways_in("asia-east1") == ("flex-start", "reservation")
    assert (
        catalog.machine("aws", "p5.48xlarge").ways_in("us-east-1")
        == catalog.machine("aws", "p5.48xlarge").ways
    )
    assert tpu.name not in {
        row.name for row in catalog.machines(region="southamerica-west1", purchase="spot")
    }
    assert tpu.name in {row.name for row in catalog.machines(region="europe-west4", purchase="spot")}


def test_gcp_sells_its_newest_machines_in_other_ways_than_on_demand() -> None:
    ways = {name: catalog.machine("gcp", name).ways for name in ("a4x-highgpu-4g", "a4-highgpu-8g")}
    assert ways == {
        "a4x-highgpu-4g": ("reservation",),
        "a4-highgpu-8g": ("spot", "flex-start", "reservation"),
    }
    assert catalog.machine("gcp", "a3-megagpu-8g").ways[-1] == "reservation", "what is sold on demand too"
    on_demand = {row.name for row in catalog.machines(cloud="gcp", purchase="on-demand")}
    assert "a3-megagpu-8g" in on_demand
    assert not {"a3-ultragpu-8g", *ways} & on_demand
