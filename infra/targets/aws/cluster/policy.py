"""Builds IAM policy documents as text that is known at preview."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

Statement = Mapping[str, Any]


def document(*statements: Statement) -> str:
    """Return a policy document."""
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def allow(
    actions: Sequence[str],
    resource: str | Sequence[str] | None = None,
    **rest: Any,  # noqa: ANN401 -- as IAM has it
) -> Statement:
    """Allow actions; without `resource` in documents that assume a role. `rest`: Principal, Condition."""
    where = {"Resource": resource if isinstance(resource, str) else list(resource)} if resource else {}
    return {"Effect": "Allow", "Action": list(actions), **where, **rest}


def assumed_by(service: str, *actions: str, **rest: Any) -> str:  # noqa: ANN401 -- as IAM has it
    """Return the document that lets an AWS service take a role."""
    return document(allow(["sts:AssumeRole", *actions], Principal={"Service": service}, **rest))
