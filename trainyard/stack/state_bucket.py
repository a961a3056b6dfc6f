"""`trainyard stack state-bucket`: creates the state backend of a cloud's stacks and the key for their
secrets, in a region that residency permits, and prints the settings that name them.
"""

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path

from infra.errors import InputError, Problem
from infra.stackfile.source import BACKEND_KEY, read_config
from infra.targets.backend import BackendSetup
from policies.config import EvaluatedStack, Organisation, Residency, check_patterns
from trainyard.forms import Form
from trainyard.stack.session import Session


def create_state_bucket(session: Session, bucket: str, region: str, form: Form) -> None:
    """Make the bucket and the key, or put right what exists; print how to use them.

    Raises InputError for a stack of no cloud, and for a region outside of the stack's residency.
    """
    account = session.target.open_account()
    location = account.state_location(session.stack, bucket, region) if account else None
    if account is None or location is None:
        got = f"kind: {session.target.kind}"
        raise InputError(
            [Problem(f"stack {session.stack_name}", got, "aws, azure, gcp", "name another stack")]
        )
    check_residency(location.region, residency(session.stack_file, session.paths.organisation))
    show(session, account.make_backend(session.stack, location), form)


def residency(stack_file: Path, organisation: Path | None) -> Residency:
    """Read where data may be, as the policies do: the stack's list, and the organisation's.

    Raises InputError where one of them is none.
    """
    declared = read_config(stack_file).get("trainyard:residency")
    try:
        given = json.loads(organisation.read_text(encoding="utf-8")) if organisation else {}
        allowed = given.get("residency-declared", {}).get("allowed")
        patterns = None if allowed is None else check_patterns(tuple(allowed), "residency-declared.allowed")
        config = {} if declared is None else {"trainyard:residency": json.dumps(declared)}
        return EvaluatedStack(config=config, organisation=Organisation(patterns)).residency
    except (OSError, ValueError, AttributeError, TypeError) as error:
        where, fix = f"{stack_file}, {organisation}" if organisation else str(stack_file), "correct the list"
        raise InputError([Problem(where, str(error), "regions of the stack's data", fix)]) from None


def check_residency(region: str, allowed: Residency) -> None:
    """Raise InputError if the state may not be in a region: it contains all that the stack has."""
    if not allowed.is_declared:
        fix = "write `trainyard:residency: {allowed: [REGION]}` into its configuration"
        raise InputError([Problem("trainyard:residency", "nothing", "regions of the stack's data", fix)])
    if not allowed.permits(region):
        raise InputError([Problem("--region", region, str(allowed), "choose a permitted region")])


def show(session: Session, backend: BackendSetup, form: Form) -> None:
    """Print the engine's settings: lines for a shell, or all of it as JSON."""
    if form == "json":
        sys.stdout.write(json.dumps(asdict(backend), indent=1) + "\n")
        return
    lines = {"PULUMI_BACKEND_URL": backend.url, "SECRETS_PROVIDER": backend.secrets_provider}
    sys.stdout.write("".join(f"export {name}={shlex.quote(value)}\n" for name, value in lines.items()))
    session.progress.log(f"or, for all users of the stack, in {session.stack_file.name}:")
    session.progress.log(f"  secretsprovider: {backend.secrets_provider}   # beside `config:`")
    session.progress.log(f"  {BACKEND_KEY}: {backend.url}   # in `config:`")
    session.progress.log("least rights of the engine's user:")
    session.progress.log(json.dumps(backend.rights, indent=1))
