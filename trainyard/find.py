"""What a cloud has of a stack and the engine's state has not: where to look for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from engine.recovery import Finder, Found, Unfinished
from infra.targets.aws.spec.provider import AwsSpec
from infra.targets.azure.spec.provider import AzureSpec
from infra.targets.gcp.spec.provider import GcpSpec
from trainyard.session import Session


def finder(session: Session, made: Path | None = None) -> Finder:
    """Return what looks into the stack's cloud, with the user's credentials.

    In a rehearsal nothing is asked of a cloud: `made` is the folder of what the stand-ins have made.
    """

    @cache
    def look() -> Finder:
        spec = session.stack.provider
        if isinstance(spec, AwsSpec):
            return _of_aws(session.stack.name, spec, made)
        if isinstance(spec, AzureSpec):
            return _of_azure(session.stack.name, spec, made)
        return _of_google(session.stack.name, spec, made) if isinstance(spec, GcpSpec) else lambda _: None

    def find(unfinished: Unfinished) -> Found | None:
        return look()(unfinished)

    return find


def _of_aws(stack: str, spec: AwsSpec, made: Path | None) -> Finder:
    from infra.targets.aws.account import find
    from rehearsal.aws import lacking, models  # boto3 takes its time, and is seldom needed

    def client(service: str) -> Any:  # noqa: ANN401 -- boto3 makes its clients' classes as it goes
        if made:
            motos = models.client(service, spec.region)
            return lacking.Ec2(motos, made / "aws") if service == "ec2" else motos
        import boto3

        make: Any = boto3.client
        return make(service, region_name=spec.region)

    looking = find.Finder(stack, spec.region, spec.account, client)
    return _finder(looking.find, looking.announced)


def _of_azure(stack: str, spec: AzureSpec, made: Path | None) -> Finder:
    from infra.targets.azure.account import find
    from rehearsal.azure import Answers

    ask: find.Ask
    if made:
        ask = Answers(made / "azure-native", spec.subscription)
    else:
        from infra.targets.azure.account.api import Azure

        ask = Azure.of_user(spec.subscription).find
    looking = find.Finder(stack, spec.subscription, ask)
    return _finder(looking.find, looking.announced)


def _of_google(stack: str, spec: GcpSpec, made: Path | None) -> Finder:
    from infra.targets.gcp.account import find
    from rehearsal.gcp import Answers

    ask: find.Ask
    if made:
        ask = Answers(made / "gcp", spec.project, spec.region)
    else:
        from infra.targets.gcp.account.api import Google

        google = Google.of_user()
        ask = google.find
    looking = find.Finder(stack, spec.project, spec.region, ask)
    return _finder(looking.find, looking.announced)


def _finder(
    begun: Callable[[str, str, Any], str | None],
    announced: Callable[[str, str, Any], tuple[str, dict[str, str]] | None],
) -> Finder:
    """Look for what was begun under its name, and for what is announced under any that fits."""

    def find(unfinished: Unfinished) -> Found | None:
        sought = unfinished.token, unfinished.name, unfinished.inputs
        if unfinished.begun:
            identity = begun(*sought)
            return Found(identity) if identity else None
        found = announced(*sought)
        return Found(*found) if found else None

    return find
