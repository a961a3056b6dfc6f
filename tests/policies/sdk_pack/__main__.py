"""The same rule written with Pulumi's policy SDK, as its documentation shows: the control of a test."""

from pulumi_policy import (
    EnforcementLevel,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
)


def validate(args: ResourceValidationArgs, report_violation: ReportViolation) -> None:
    if args.resource_type.startswith("aws:") and not args.props["region"].startswith("eu-"):
        report_violation(f"region: got {args.props['region']}", None)


PolicyPack(
    name="sdk",
    enforcement_level=EnforcementLevel.MANDATORY,
    policies=[ResourceValidationPolicy(name="region", description="Regions in Europe", validate=validate)],
)
