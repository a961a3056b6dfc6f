"""What a cloud has of a stack and the engine's state has not: where to look for it."""

from __future__ import annotations

from typing import Any

from infra.spec.aws import AwsSpec
from local.engine.recovery import Finder, Found, Unfinished
from trainyard.session import Session


def finder(session: Session, *, rehearsed: bool = False) -> Finder:
    """Return what looks into the stack's cloud, with the user's credentials or (rehearsed) with none.

    Of Google Cloud nothing is looked for: its resources have names of their own, and one that exists is
    refused by that name.
    """

    def find(unfinished: Unfinished) -> Found | None:
        spec = session.stack.provider
        if not isinstance(spec, AwsSpec):
            return None
        from rehearsal.aws import find, models  # boto3 takes its time, and is seldom needed

        def client(service: str) -> Any:  # noqa: ANN401 -- boto3 makes its clients' classes as it goes
            if rehearsed:
                return models.client(service, spec.region)
            import boto3

            make: Any = boto3.client
            return make(service, region_name=spec.region)

        looking = find.Finder(session.stack.name, spec.region, spec.account, client)
        sought = unfinished.token, unfinished.name, unfinished.inputs
        if unfinished.begun:
            identity = looking.find(*sought)
            return Found(identity) if identity else None
        found = looking.announced(*sought)
        return Found(*found) if found else None

    return find
