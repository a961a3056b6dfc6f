"""Exemptions from policies: their fields, their last day, and the resources that they cover."""

import json
import re
from datetime import date

import pytest

from policies.config import EvaluatedStack
from policies.exemptions import Exemption, PolicyConfigError, parse_exemptions

DATA = {
    "policy": "residency-region",
    "resource": "aws:s3/bucket:Bucket::public-*",
    "owner": "security@example.org",
    "reason": "public data",
    "expires": "2027-03-31",
}


def test_an_exemption_applies_through_its_last_day() -> None:
    exemption = Exemption.parse(DATA, "exemptions[0]")
    assert not exemption.expired(date(2027, 3, 31))
    assert exemption.expired(date(2027, 4, 1))


def test_its_date_needs_no_quotes_in_a_stack_file() -> None:
    """The engine passes an unquoted date as Go prints a time."""
    [passed] = parse_exemptions([{**DATA, "expires": "2027-03-31 00:00:00 +0000 UTC"}], "exemptions")
    assert [passed] == list(parse_exemptions([DATA], "exemptions"))


def test_it_covers_its_policy_and_its_resources_only() -> None:
    exemption = Exemption.parse(DATA, "exemptions[0]")
    assert exemption.covers("residency-region", "aws:s3/bucket:Bucket::public-maps", "region", "us-east-1")
    assert not exemption.covers("residency-region", "aws:s3/bucket:Bucket::private", "region", "us-east-1")
    assert not exemption.covers("security-tls", "aws:s3/bucket:Bucket::public-maps", "region", "us-east-1")


def test_a_narrow_one_covers_its_value_only() -> None:
    narrow = Exemption.parse({**DATA, "property": "region", "got": "us-east-1"}, "exemptions[0]")
    assert narrow.is_narrow
    assert narrow.covers("residency-region", "aws:s3/bucket:Bucket::public-maps", "region", "us-east-1")
    assert not narrow.covers("residency-region", "aws:s3/bucket:Bucket::public-maps", "region", "us-west-2")
    assert not narrow.covers("residency-region", "aws:s3/bucket:Bucket::public-maps", "zone", "us-east-1")
    assert not narrow.includes(Exemption.parse(DATA, "own"))
    assert Exemption.parse(DATA, "granted").includes(narrow)


@pytest.mark.parametrize(
    ("field", "text"), [("resource", "*"), ("resource", "*::*"), ("owner", "me"), ("reason", "x")]
)
def test_a_stack_may_not_exempt_everything_nor_for_nobody(field: str, text: str) -> None:
    written = {**DATA, field: text}
    stack = EvaluatedStack(config={"trainyard:exemptions": json.dumps([written])})
    with pytest.raises(PolicyConfigError, match=rf"exemptions\[0\]\.{field}: got '{re.escape(text)}'"):
        _ = stack.exemptions


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        *(({name: ""}, rf"exemptions\[0\]\.{name}") for name in DATA),
        ({"expires": "soon"}, "expires: got 'soon'; allowed: a date"),
        ({"expiry": "2027-03-31"}, "expiry"),
    ],
)
def test_a_field_that_is_missing_wrong_or_unknown_is_named(changed: dict[str, str], named: str) -> None:
    with pytest.raises(PolicyConfigError, match=named):
        parse_exemptions([{**DATA, **changed}], "exemptions")


def test_an_exemption_includes_those_with_the_same_policy_and_fewer_resources() -> None:
    exemption = Exemption.parse(DATA, "exemptions[0]")
    assert exemption.includes(exemption)
    assert exemption.includes(Exemption.parse({**DATA, "resource": "aws:s3/bucket:Bucket::public-a*"}, "own"))
    assert not exemption.includes(Exemption.parse({**DATA, "resource": "aws:s3/bucket:Bucket::*"}, "own"))
    assert not exemption.includes(Exemption.parse({**DATA, "policy": "security-tls"}, "own"))
