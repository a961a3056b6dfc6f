"""Finds readable secrets in a stack's state, its files or the output of commands."""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SECRET = "rehearsed-secret"  # noqa: S105 -- a fake one: no plain value in a state may begin with it
"""Prefix of the secrets that fakes issue."""

CREDENTIALS: Mapping[str, str] = {
    name: f"{SECRET}-{name.lower()}"
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "ARM_CLIENT_SECRET",
        "GOOGLE_OAUTH_ACCESS_TOKEN",
    )
}
"""Fake values of credential variables that programs and providers read, so that no real one is used; a
target's fake adds its own (`RunningFake.variables`)."""

KINDS: Mapping[str, re.Pattern[str]] = {
    "a fake provider's secret": re.compile(re.escape(SECRET)),
    "a secret that the engine has not encrypted": re.compile(r'\\*"plaintext\\*":'),
    "a private key": re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"),
    "an access key of AWS": re.compile(r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b"),
    "an access token of Google": re.compile(r"\bya29\.[\w-]{20}"),
    "an API key of Google": re.compile(r"\bAIza[\w-]{35}"),
    "a client secret of Azure": re.compile(r"\b[\w~.-]{3}8Q~[\w~.-]{34}"),
    "a signature of Azure": re.compile(r"[?&]sig=[\w%]{40}"),
    "a signed token": re.compile(r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"),
    "a password, key or token under its name": re.compile(
        r"(?:(?i:password|passphrase|secret_?(?:access_?)?key|client_?secret|account_?key|client-key-data"
        # Not every token is secret: a `creationToken` names a request, a `pad_token` is a model's.
        r"|(?<![a-z0-9_-])token|(?:access|api|auth|bearer|join|refresh|security|session)[_-]?token)|_TOKEN)"
        r"\\*[\"']?\s*[:=]\s*\\*[\"']?[\w/+~.=-]{8}"
    ),
}
"""Kind of secret → its pattern, for secrets of clouds and Kubernetes whose value is not known beforehand."""

_STORAGE_KEY = re.compile(r"(?<![\w+/:-])[A-Za-z0-9+/]{86}==")
"""Pattern of an Azure storage account's key: 64 bytes in Base64; a digest has its algorithm before it."""
_ENCRYPTED = re.compile(r"v1:[A-Za-z0-9+/]{16}:[A-Za-z0-9+/]+={0,2}")
"""Pattern of a value that the engine has encrypted with the stack's passphrase."""
_ENCODED = re.compile(r"(?<![\w+/-])[A-Za-z0-9+/]{20,}={0,2}")


@dataclass(frozen=True)
class Leak:
    """A secret that can be read, without the secret."""

    file: str
    kind: str


def known_in(text: str, known: Mapping[str, str]) -> set[str]:
    """Return the names of the secrets (name → secret) that a text has, in the clear or in Base64."""
    return {name for each in _readable(text) for name, secret in known.items() if secret in each}


def kinds_in(text: str, known: Mapping[str, str] = {}) -> set[str]:
    """Return the names of known secrets in a text, and the kinds of all other content that looks like one."""
    clear = _ENCRYPTED.sub("", text)
    found = known_in(clear, known)
    for each in _readable(clear):
        found |= {kind for kind, form in KINDS.items() if form.search(each)}
        if any(_decoded(key) is None for key in _STORAGE_KEY.findall(each)):
            found.add("a key of an Azure storage account")
    return found


def _readable(text: str) -> Iterator[str]:
    """Give the text, and the texts that its Base64 holds."""
    yield text
    for encoded in _ENCODED.findall(text):
        decoded = _decoded(encoded)
        if decoded is not None:
            yield from _readable(decoded)


def _decoded(encoded: str) -> str | None:
    """Return the text that Base64 holds; None where it holds no text, or is none."""
    value = encoded.rstrip("=")
    try:
        return base64.b64decode(value + "=" * (-len(value) % 4)).decode("ascii")
    except ValueError:
        return None


def leaks_in(lines: Mapping[str, str], known: Mapping[str, str] = {}) -> list[Leak]:
    """Return the secrets that can be read in lines (each with the file and line where it is)."""
    if not kinds_in("\n".join(lines), known):
        return []  # nearly always; searching line by line takes far longer
    return [Leak(file, kind) for line, file in lines.items() for kind in sorted(kinds_in(line, known))]


def lines_of(files: Iterable[Path]) -> dict[str, str]:
    """Return each line that files have → the first file and line where it is: states repeat nearly all of
    theirs.
    """
    found: dict[str, str] = {}
    for file in files:
        for number, line in enumerate(file.read_bytes().decode(errors="replace").splitlines(), 1):
            found.setdefault(line, f"{file}:{number}")
    return found
