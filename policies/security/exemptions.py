"""Policy: exemptions are neither expired nor granted for too long."""

from collections.abc import Iterator
from datetime import timedelta

from policies.exemptions import NARROW_FROM
from policies.policy import Policy, Resource, Severity, Violation, parameter


def evaluate(resource: Resource) -> Iterator[Violation]:
    """An exemption that expired, or that was granted for longer than is agreed."""
    today = resource.stack.today
    latest = today + timedelta(days=resource.parameters["maximum_days"])
    for exemption in resource.stack.exemptions:
        what = f"exemption of {exemption.owner} from {exemption.policy} for {exemption.resource}"
        if exemption.expired(today):
            yield Violation(what, f"expired on {exemption.expires}", f"expiry on {today} or later")
        elif exemption.expires > latest:
            yield Violation(what, f"expiry on {exemption.expires}", f"{latest} at the latest")
        if today >= NARROW_FROM and not exemption.is_narrow:
            yield Violation(what, "no property and got", "those that the exempt finding shows")


POLICY = Policy(
    name="exemptions",
    title="Exemptions are current",
    reason="Exemptions without an end are never reviewed.",
    remedy="Remove the exemption, or have its owner renew it.",
    types=("pulumi:pulumi:Stack",),
    evaluate=evaluate,
    severity=Severity.MEDIUM,
    frameworks=("NIST SP 800-53 CA-5", "ISO/IEC 27001 A.5.36"),
    parameters={
        "granted": parameter(
            "array",
            [],
            "Exemptions of the organisation: policy, resource, owner, reason, expires.",
            items={"type": "object", "required": ["policy", "resource", "owner", "reason", "expires"]},
        ),
        "from_stack": parameter(
            "boolean", True, "Whether a stack may add exemptions in `trainyard:exemptions`."
        ),
        "maximum_days": parameter(
            "integer", 365, "Maximum number of days from today until an exemption expires.", minimum=1
        ),
    },
)
