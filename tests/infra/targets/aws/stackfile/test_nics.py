"""Network interfaces of EC2 machines: the layout is valid for machines of the catalogue and for any other."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import catalog
from catalog import EfaLayout, Machine
from infra.targets.aws.stackfile.nics import NetworkInterface, network_interfaces

AWS = catalog.machines(cloud="aws")
EXAMPLE = catalog.machine("aws", "p5en.48xlarge")


@st.composite
def layouts(draw: st.DrawFn) -> EfaLayout:
    cards = draw(st.integers(2, 40))
    card_0 = draw(st.booleans())
    interfaces = draw(st.integers(1, cards if card_0 else cards - 1))
    return EfaLayout(network_cards=cards, interfaces=interfaces, card_0=card_0)


def assert_ec2_takes(machine: Machine) -> None:
    interfaces = network_interfaces(machine)
    slots = [(item.card, item.device) for item in interfaces]
    assert interfaces[0] == NetworkInterface(card=0, device=0, kind="ena")
    assert len(slots) == len(set(slots))
    assert {item.device for item in interfaces} <= {0, 1}, "EC2 refuses a device index of 2 or more here"
    assert [item for item in interfaces if item.device == 1 and item.card != 0] == []
    efas = [item for item in interfaces if item.kind == "efa-only"]
    assert len(efas) == len(interfaces) - 1 == (machine.efa.interfaces if machine.efa else 0)
    assert len({item.card for item in efas}) == len(efas), "one EFA per card"
    if machine.efa:
        assert max(item.card for item in interfaces) < machine.efa.network_cards
        assert (0 in {item.card for item in efas}) is machine.efa.card_0


@pytest.mark.parametrize("machine", AWS, ids=lambda machine: machine.name)
def test_the_interfaces_of_every_machine_are_valid(machine: Machine) -> None:
    assert_ec2_takes(machine)


@given(layout=layouts())
def test_the_interfaces_of_any_machine_would_be_valid(layout: EfaLayout) -> None:
    assert_ec2_takes(replace(EXAMPLE, efa=layout))


@pytest.mark.parametrize("machine", AWS, ids=lambda machine: machine.name)
def test_a_pod_requests_as_many_efas_as_the_machine_has(machine: Machine) -> None:
    asked = catalog.fabric(machine.fabric).resources.get("vpc.amazonaws.com/efa", 0)
    laid_out = [item for item in network_interfaces(machine) if item.kind == "efa-only"]
    assert asked == len(laid_out)


def test_a_p5_has_one_ena_and_32_efas_and_its_card_0_carries_both() -> None:
    interfaces = network_interfaces(catalog.machine("aws", "p5.48xlarge"))
    assert [item.interface_type for item in interfaces] == [None] + ["efa-only"] * 32
    assert [(item.card, item.device) for item in interfaces[:3]] == [(0, 0), (0, 1), (1, 0)]


def test_a_p6_b300_keeps_card_0_for_ip() -> None:
    interfaces = network_interfaces(catalog.machine("aws", "p6-b300.48xlarge"))
    assert [item.card for item in interfaces] == list(range(17))
    assert {item.device for item in interfaces} == {0}


def test_a_p6e_has_an_efa_for_each_gpu_on_a_separate_card() -> None:
    interfaces = network_interfaces(catalog.machine("aws", "p6e-gb200.36xlarge"))
    assert [(item.card, item.kind) for item in interfaces] == [
        (0, "ena"),
        *((card, "efa-only") for card in (1, 5, 9, 13)),
    ]


@pytest.mark.parametrize(
    ("cards", "message"), [((1, 5), "not one for each of cards"), ((1, 2, 3, 17), "not cards 1 to 16")]
)
def test_cards_that_efas_cannot_have_are_refused(cards: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EfaLayout(network_cards=17, interfaces=4, card_0=False, cards=cards)


def test_more_cards_than_efas_leave_cards_empty() -> None:
    machine = replace(EXAMPLE, efa=EfaLayout(network_cards=9, interfaces=8, card_0=True))
    assert {item.card for item in network_interfaces(machine)} == set(range(8))


def test_efas_that_do_not_fit_on_the_cards_are_refused() -> None:
    with pytest.raises(ValueError, match="17 EFA interfaces do not fit on 16 cards"):
        EfaLayout(network_cards=17, interfaces=17, card_0=False)


def test_other_clouds_lay_out_no_interfaces() -> None:
    with pytest.raises(ValueError, match="machine of gcp"):
        network_interfaces(catalog.machine("gcp", "a3-ultragpu-8g"))
