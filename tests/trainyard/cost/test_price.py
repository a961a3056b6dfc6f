"""`trainyard cost`: costs by the catalogue's dated prices; a missing price is reported and never guessed."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest
from rich.console import Console

import catalog
from catalog import Estimate, PricedPurchase, ServicePurchase, StoragePurchase
from infra.errors import InputError
from infra.stackfile import Stack, load
from infra.stackfile.dataset import DatasetSpec
from infra.stackfile.storage import LifecycleSpec
from infra.targets.aws.stackfile.target import AwsSpec, EfsSpec, ExistingEfsSpec
from tests.infra.plan import stack_file
from tests.tables import table
from trainyard.cost.catalog import filters_of, rows_of, show_catalog
from trainyard.cost.price import PriceReport, price_report, remark, show_price
from trainyard.forms import CatalogPart, ReportForm

CASES = table(__file__)
TODAY = date(2026, 9, 25)
"""50 days after the prices of p5en in Ohio, 4 after those of NAT, EFS and S3."""
LATER = date(2026, 12, 31)


def test_every_pool_has_its_price_per_hour_and_month() -> None:
    data = price_report(load(stack_file("aws")), TODAY).data()
    spot = next(pool for pool in data["pools"] if pool["name"] == "spot")
    assert spot["usdPerHour"] == 4 * 26.57
    assert spot["usdPerMonth"] == round(4 * 26.57 * 730, 4)
    assert (spot["priceDate"], spot["ageDays"], spot["stale"]) == ("2026-08-06", 50, False)
    assert data["usdPerHour"] == 4 * 26.57 + 2 * 63.30 + 3 * 0.045


def test_a_missing_price_is_reported_and_in_no_total() -> None:
    found = price_report(load(stack_file("aws")), TODAY)
    data = found.data()
    assert not data["complete"]
    missing = {pool["name"] for pool in data["pools"] if pool["usdPerHour"] is None}
    assert missing == {"system", "preprocessing"}
    assert (
        "system: not in the totals: the catalogue has no on-demand price of m7i.2xlarge in us-east-2"
        in found.remarks
    )
    lustre = (
        "filesystem: not in the totals: the catalogue has no price of fsx-lustre-250 in us-east-2 (19200 GiB)"
    )
    assert lustre in found.remarks


def test_storage_that_grows_has_its_rate_and_no_total() -> None:
    found = price_report(load(stack_file("gcp")), TODAY)
    store = next(each for each in found.data()["storage"] if each["name"] == "object store")
    assert (store["usdPerGibMonth"], store["usdPerMonth"], store["ageDays"]) == (0.02, None, 568)
    rate = "object store: not in the totals: 0.02 USD per GiB-month of objects that jobs store, on 2025-03-06"
    assert rate in found.remarks


def test_storage_of_a_known_size_is_in_the_totals() -> None:
    price = catalog.storage_price("aws", "efs-standard", "us-east-1", LATER)
    bought = StoragePurchase(
        name="filesystem", cloud="aws", region="us-east-1", kind="efs-standard", gib=7300
    )
    share = PricedPurchase(bought, price)
    assert (share.usd_per_month, share.usd_per_hour) == (Decimal(2190), Decimal(3))
    assert PriceReport("lab", Estimate((share,))).usd_per_month == 2190
    assert "filesystem: the price is 101 days old" in remark(share)


def test_snapshots_that_are_stored_separately_are_named() -> None:
    stack = load(stack_file("aws-dev"))
    assert "snapshots: not in the totals" in " ".join(price_report(stack, TODAY).remarks)
    checkpoints = stack.storage.checkpoints.model_copy(update={"snapshot_days": 0})
    without = stack.model_copy(
        update={"storage": stack.storage.model_copy(update={"checkpoints": checkpoints})}
    )
    assert "snapshots" not in {each.name for each in price_report(without, TODAY).storage}


def test_control_plane_and_nat_are_in_the_totals_where_their_prices_are_known() -> None:
    bought = ServicePurchase(name="NAT", cloud="aws", region="us-east-1", kind="nat-gateway", number=3)
    (service,) = catalog.estimate([bought], LATER).costs
    assert (service.usd_per_hour, service.usd_per_month) == (Decimal("0.135"), Decimal("98.55"))
    assert "NAT: the price is 101 days old" in remark(service)
    found = PriceReport("lab", Estimate((service,)))
    assert found.usd_per_hour == Decimal("0.135")
    assert not found.is_complete
    assert "control plane" not in found.not_included


def test_services_of_a_region_without_a_price_are_named_and_add_nothing() -> None:
    found = price_report(load(stack_file("aws")), TODAY)
    output = {each["name"]: each for each in found.data()["services"]}
    assert {name: each["number"] for name, each in output.items()} == {"control plane": 1, "NAT": 3}
    assert {name: each["usdPerHour"] for name, each in output.items()} == {
        "control plane": None,
        "NAT": 0.135,
    }
    unknown = "control plane: not in the totals: the catalogue has no price of eks-cluster in us-east-2"
    assert unknown in found.remarks
    gcp = {
        each["name"]: each["number"]
        for each in price_report(load(stack_file("gcp")), TODAY).data()["services"]
    }
    assert gcp == {"control plane": 1, "NAT": 15}
    assert "control plane" in price_report(load(stack_file("coreweave")), TODAY).not_included


def test_a_spot_pool_of_two_machine_types_has_a_price_for_each() -> None:
    pools = price_report(load(stack_file("aws")), TODAY).data()["pools"]
    bought = {pool["machine"]: pool["nodes"] for pool in pools if pool["name"] == "preprocessing"}
    assert bought == {"m7i.8xlarge": 3, "m7i.16xlarge": 3}


def test_an_old_price_is_reported_as_old() -> None:
    later = price_report(load(stack_file("aws")), date(2026, 11, 21))
    assert any("spot: the price is 107 days old, more than 90" in each for each in later.remarks)
    assert not later.is_complete


def test_an_existing_filesystem_is_not_in_the_costs() -> None:
    stack = load(stack_file("aws"))
    assert isinstance(stack.target, AwsSpec)
    existing = ExistingEfsSpec(id="fs-0123456789abcdef0", security_group="sg-0123456789abcdef0")
    filesystem = EfsSpec(kind="efs", existing=existing)
    provider = stack.target.model_copy(update={"filesystem": filesystem})
    found = price_report(stack.model_copy(update={"target": provider}), TODAY)
    assert [each.name for each in found.storage] == ["object store"]


def test_where_nothing_has_a_price_there_is_no_total() -> None:
    found = price_report(load(stack_file("aws-dev")), TODAY)
    data = replace(found, estimate=Estimate((*found.pools, *found.storage))).data()
    assert data["usdPerHour"] is data["usdPerMonth"] is None


def test_a_local_stack_has_no_cost(capsys: pytest.CaptureFixture[str]) -> None:
    local = load(stack_file("local"))
    assert price_report(local, TODAY).data()["pools"] == []
    text = io.StringIO()
    show_price(local, ReportForm.TEXT, Console(file=text, width=120))
    assert "nothing is bought" in text.getvalue()


def test_a_comment_has_a_table_and_every_remark(capsys: pytest.CaptureFixture[str]) -> None:
    show_price(load(stack_file("aws")), ReportForm.MARKDOWN, Console())
    output = capsys.readouterr().out
    assert output.startswith("### Price of `training`\n\n| what |")
    assert "| spot | p5en.48xlarge | spot | 4 | 106.28 | 77,584.40 |" in output
    assert "- object store: not in the totals" in output


def test_machines_are_listed_by_filters(capsys: pytest.CaptureFixture[str]) -> None:
    filters = filters_of(cloud="aws", accelerator="h200", region="us-east-2", fabric="")
    show_catalog(CatalogPart.MACHINES, filters, ReportForm.JSON, Console())
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["p5e.48xlarge", "p5en.48xlarge"]


def test_prices_of_a_region_name_what_is_missing() -> None:
    filters = filters_of(cloud="aws", accelerator="h200", region="us-east-2")
    rows = rows_of(CatalogPart.PRICES, filters, TODAY)
    by_kind = {(row["machine"], row["capacity"]): row for row in rows}
    assert by_kind["p5en.48xlarge", "spot"]["USD/h"] == 26.57
    assert by_kind["p5e.48xlarge", "spot"]["USD/h"] is None
    assert "no spot price of p5e.48xlarge" in by_kind["p5e.48xlarge", "spot"]["remark"]


@pytest.mark.parametrize(("given", "nearest"), CASES["filters"])
def test_a_filter_that_the_catalogue_lacks_is_refused_with_the_nearest(
    given: dict[str, str], nearest: str
) -> None:
    with pytest.raises(InputError, match=f"did you mean '{nearest}'"):
        rows_of(CatalogPart.MACHINES, filters_of(**given), TODAY)


DIGEST = f"sha256:{'0' * 64}"


def staged(stack: Stack, source: str, region: str | None) -> PriceReport:
    dataset = DatasetSpec.model_validate(
        {"name": "pile", "source": source, "digest": DIGEST, "size": "100Gi", "region": region}
    )
    return price_report(stack.model_copy(update={"datasets": (dataset,)}), TODAY)


def test_egress_is_priced_by_its_source_and_destination() -> None:
    aws, coreweave = load(stack_file("aws")), load(stack_file("coreweave"))
    inside = staged(aws, "s3://example-data/pile/", "us-east-2").data()["transfers"]
    outside = staged(coreweave, "s3://example-data/pile/", "us-east-1").data()["transfers"]
    assert [(each["gib"], each["usd"]) for each in inside] == [(100, 0)]
    assert [(each["usd"], each["priceDate"]) for each in outside] == [(9.0, "2026-03-08")]


def test_egress_without_a_price_is_reported_as_unknown_and_never_guessed() -> None:
    aws = load(stack_file("aws"))
    for source, region, reason in (
        ("s3://example-data/pile/", "eu-central-1", "the catalogue has no price of data from aws"),
        ("gs://example-data/pile/", "europe-west4", "the catalogue has no price of data from gcp"),
        ("s3://example-data/pile/", None, "its `region` is not set"),
    ):
        found = staged(aws, source, region)
        assert found.data()["transfers"][0]["usd"] is None
        assert any(remark.startswith(f"dataset pile, 100 GiB, once: {reason}") for remark in found.remarks)
        assert not found.is_complete


def test_egress_to_an_on_premises_cluster_is_a_cost_too() -> None:
    found = staged(load(stack_file("local")), "s3://example-data/pile/", "us-east-1")
    assert [each.usd for each in found.transfers] == [9]
    assert staged(load(stack_file("local")), "/imports/pile/", None).transfers == ()


def test_deleted_checkpoints_are_in_the_remarks() -> None:
    for name, days, words in CASES["deleted"]:
        stack = load(stack_file(name))
        lifecycle = LifecycleSpec(deleted_checkpoint_days=days)
        stack.storage.object_store.__dict__["lifecycle"] = lifecycle
        assert words in " ".join(price_report(stack, TODAY).remarks)
