"""Reports of the policies in each format (JSON, SARIF, JUnit, HTML), valid for their readers."""

import json
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator

from policies.config import EvaluatedStack
from policies.evaluation import Finding, PolicyEvaluator
from policies.pack import POLICIES
from policies.policy import Resource
from policies.reports import FORMATS, PolicyReport, write
from policies.unknowns import PropertyBlock
from tests.tables import table

CONFIG = {key: json.dumps(value) for key, value in table(__file__).items()}


@pytest.fixture
def report() -> PolicyReport:
    evaluator = PolicyEvaluator(POLICIES)
    findings: list[Finding] = []
    for name, region in (("home", "eu-west-1"), ("<abroad>", "us-east-1"), ("agreed", "us-east-1")):
        props = PropertyBlock({"region": region})
        urn = f"urn:pulumi:s::p::aws:sqs/queue:Queue::{name}"
        resource = Resource("aws:sqs/queue:Queue", name, urn, props, stack=EvaluatedStack(config=CONFIG))
        findings += evaluator.evaluate(resource)
    return PolicyReport("p", "s", 3, POLICIES, findings, ())


def test_every_format_is_written(report: PolicyReport, tmp_path: Path) -> None:
    write(report, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == set(FORMATS)


def test_json_distinguishes_violations_and_exemptions(report: PolicyReport) -> None:
    data = json.loads(FORMATS["policies.json"](report))
    assert data["passed"] is False
    assert data["run"] == "preview"
    assert [violation["got"] for violation in data["violations"]] == ["us-east-1"]
    assert [e["exemption"] for e in data["exempt"]] == [
        "exempt until 2199-01-01 by security@example.org: public data <set>"
    ]


def test_sarif_names_the_resource_and_suppresses_exempt_violations(report: PolicyReport) -> None:
    run = json.loads(FORMATS["policies.sarif"](report))["runs"][0]
    assert len(run["tool"]["driver"]["rules"]) == len(POLICIES)
    assert run["automationDetails"]["id"] == "policies/p/s/"
    broken, exempt = run["results"]
    assert broken["level"] == "error"
    assert broken["locations"][0]["logicalLocations"][0]["name"] == "<abroad>"
    assert "suppressions" not in broken
    assert exempt["suppressions"][0]["status"] == "accepted"


def test_sarif_is_valid_by_its_schema(report: PolicyReport) -> None:
    log = json.loads(FORMATS["policies.sarif"](report))
    Draft202012Validator(table(__file__, "sarif")).validate(log)
    rules = [rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]]
    assert len(set(rules)) == len(rules)
    assert {result["ruleId"] for result in log["runs"][0]["results"]} <= set(rules)


def test_junit_is_valid_for_ci_systems(report: PolicyReport) -> None:
    """The rules are of Jenkins' junit-10.xsd, which is stricter than GitLab and GitHub's actions."""
    suite = ElementTree.fromstring(FORMATS["policies.xml"](report))
    assert suite.tag == "testsuite"
    assert set(suite.attrib) == {"name", "tests", "failures", "errors"}
    assert {case.tag for case in suite} == {"testcase"}
    for case in suite:
        assert set(case.attrib) == {"classname", "name"}
        assert {part.tag for part in case} <= {"failure", "system-out"}
        for failure in case.iter("failure"):
            assert set(failure.attrib) == {"message", "type"}
    failed = [case for case in suite if case.find("failure") is not None]
    assert [suite.get(key) for key in ("tests", "failures", "errors")] == [
        str(len(suite)),
        str(len(failed)),
        "0",
    ]


def test_xml_is_well_formed_whatever_a_property_contains() -> None:
    props = PropertyBlock({"region": "us\x00\x1b[31m-east\ufffe"})
    resource = Resource(
        "aws:sqs/queue:Queue", "odd\x07", "urn:odd\x07", props, stack=EvaluatedStack(config=CONFIG)
    )
    found = list(PolicyEvaluator(POLICIES).evaluate(resource))
    suite = ElementTree.fromstring(FORMATS["policies.xml"](PolicyReport("p", "s", 1, POLICIES, found, ())))
    (message,) = [failure.get("message") for failure in suite.iter("failure")]
    assert message == "odd\ufffd: region: got us\ufffd\ufffd[31m-east\ufffd; allowed: eu-*"


def test_junit_has_one_case_per_policy_and_fails_the_violated_ones(report: PolicyReport) -> None:
    suite = ElementTree.fromstring(FORMATS["policies.xml"](report))
    assert suite.get("tests") == str(len(POLICIES))
    assert suite.get("failures") == "1"
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["Resources are in the regions that the stack declares"]
    messages = [failure.get("message") for failure in suite.iter("failure")]
    assert messages == ["<abroad>: region: got us-east-1; allowed: eu-*"]


def test_the_page_is_well_formed_and_escapes_users_text(report: PolicyReport) -> None:
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
    assert f"Preview of {report.at:%Y-%m-%d %H:%M} UTC: 3 resources evaluated" in page
