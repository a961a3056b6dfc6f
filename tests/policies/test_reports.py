"""Reports say the same in every format, and stay readable by what reads them."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from policies.config import Stack
from policies.judgement import Court, Finding
from policies.pack import POLICIES
from policies.policy import Resource
from policies.reports import FORMATS, Report, write
from policies.unknowns import Properties

CONFIG = {
    "trainyard:residency": '{"allowed": ["eu-*"]}',
    "trainyard:exemptions": json.dumps(
        [
            {
                "policy": "residency-region",
                "resource": "*::agreed",
                "owner": "security@example.org",
                "reason": "public data <set>",
                "expires": "2199-01-01",
            }
        ]
    ),
}


@pytest.fixture
def report() -> Report:
    court = Court(POLICIES)
    findings: list[Finding] = []
    for name, region in (("home", "eu-west-1"), ("<abroad>", "us-east-1"), ("agreed", "us-east-1")):
        props = Properties({"region": region})
        urn = f"urn:pulumi:s::p::aws:sqs/queue:Queue::{name}"
        resource = Resource("aws:sqs/queue:Queue", name, urn, props, stack=Stack(config=CONFIG))
        findings += court.judge(resource)
    return Report("p", "s", 3, POLICIES, findings, ())


def test_every_format_is_written(report: Report, tmp_path: Path) -> None:
    write(report, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == set(FORMATS)


def test_json_tells_violations_from_exemptions(report: Report) -> None:
    data = json.loads(FORMATS["policies.json"](report))
    assert data["passed"] is False
    assert data["run"] == "preview"
    assert [violation["got"] for violation in data["violations"]] == ["us-east-1"]
    assert [e["exemption"] for e in data["exempt"]] == [
        "exempt until 2199-01-01 by security@example.org: public data <set>"
    ]


def test_sarif_names_the_resource_and_suppresses_what_is_exempt(report: Report) -> None:
    run = json.loads(FORMATS["policies.sarif"](report))["runs"][0]
    assert len(run["tool"]["driver"]["rules"]) == len(POLICIES)
    assert run["automationDetails"]["id"] == "policies/p/s/"
    broken, exempt = run["results"]
    assert broken["level"] == "error"
    assert broken["locations"][0]["logicalLocations"][0]["name"] == "<abroad>"
    assert "suppressions" not in broken
    assert exempt["suppressions"][0]["status"] == "accepted"


def test_junit_has_one_case_per_policy_and_fails_the_violated_ones(report: Report) -> None:
    suite = ElementTree.fromstring(FORMATS["policies.xml"](report))
    assert suite.get("tests") == str(len(POLICIES))
    assert suite.get("failures") == "1"
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["Resources are in the regions that the stack declares"]
    messages = [failure.get("message") for failure in suite.iter("failure")]
    assert messages == ["<abroad>: region: got us-east-1; allowed: eu-*"]


def test_the_page_is_whole_and_escapes_what_users_wrote(report: Report) -> None:
    page = FORMATS["policies.html"](report)
    open_tags: list[str] = []

    class Balance(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag not in ("meta", "br"):
                open_tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

    Balance().feed(page)
    assert open_tags == []
    assert "&lt;abroad&gt;" in page
    assert "<abroad>" not in page
    assert "1 violation on 1 resource: the run stops." in page
    assert f"Preview of {report.at:%Y-%m-%d %H:%M} UTC: 3 resources judged" in page
