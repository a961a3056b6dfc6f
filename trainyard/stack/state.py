"""Resolves the backend that stores a stack's state (stack file, environment, or this host) and the engine's
variables for it.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from infra.errors import InputError, Problem
from infra.stackfile.source import BACKEND_KEY, read_config

SCHEMES = ("azblob", "file", "gs", "https", "s3")
"""URL schemes of Pulumi's backends (Pulumi, "State and backends")."""
PASSPHRASES = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")


def declared_backend(stack_file: Path) -> str:
    """Return the backend that a stack file names, empty for none. Raises InputError for a wrong one."""
    url = read_config(stack_file).get(BACKEND_KEY)
    if url is None:
        return ""
    if not isinstance(url, str) or urlsplit(url).scheme not in SCHEMES:
        allowed = "the URL of a Pulumi backend: " + ", ".join(f"{each}://…" for each in SCHEMES)
        fix = "write what `trainyard stack state-bucket` prints, or leave it out: the state is on this host"
        raise InputError([Problem(BACKEND_KEY, repr(url), allowed, fix, str(stack_file))])
    return url


def backend_variables(
    stack_file: Path, local: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the engine's variables for the stack's backend, given those for a state on this host.

    A backend elsewhere is reached with what the user has signed in with, and its secrets with the user's own
    passphrase where there is one: that remains in the environment, since `trainyard stack env` prints these.
    """
    url = declared_backend(stack_file) or environ.get("PULUMI_BACKEND_URL", "")
    if not url or url == local["PULUMI_BACKEND_URL"]:
        return dict(local)
    signed_in = Path(environ.get("HOME", "/root")) / ".pulumi"
    credentials = environ.get("PULUMI_CREDENTIALS_PATH") or str(signed_in)
    not_ours = PASSPHRASES if any(name in environ for name in PASSPHRASES) else ()
    inherited = {name: value for name, value in local.items() if name not in not_ours}
    return {
        **inherited,
        # The engine uploads the state, megabytes of JSON, after every step, and reads both forms.
        "PULUMI_DIY_BACKEND_GZIP": environ.get("PULUMI_DIY_BACKEND_GZIP", "true"),
        "PULUMI_BACKEND_URL": url,
        "PULUMI_CREDENTIALS_PATH": credentials,
    }
