"""Docstrings, comments and names use the field's words, so that a platform engineer finds the code by them.

Left: a word that this project used in a sense of its own. Right: what the field calls it. An exception is a
phrase in which the word has its ordinary meaning, or is a term of a cloud's or of a library's.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from engine.paths import REPOSITORY

PACKAGES = (
    "benchmarks",
    "catalog",
    "engine",
    "infra",
    "local",
    "policies",
    "rehearsal",
    "training",
    "trainyard",
)
WORDS = {
    r"told|said": "outputs, messages, prints",
    r"grounds|stands? on": "dependencies",
    r"(a|last|its|final) word": "message, reason, exit code",
    r"people|lets? in|gets? in": "members, RBAC, role bindings",
    r"on call|comes? and goe?s?": "autoscaled",
    r"brought along": "existing",
    r"cards?": "NICs, GPUs",
    r"on notice": "preemption notice",
    r"(rank|node|pod|agent|process|peer)(s|es)? (leaves?|left)": "exits, shuts down, drains",
    r"lost (rank|node|pod|process)|(rank|node|pod|process)(s|es)? (is|are|was|were) lost": "failed",
    r"leads": "is_rank0",
    r"court|doubts?|judge(s|d|ment)?": "evaluates, fails closed",
    r"neighbou?rs?": "related resources",
    r"stand-?ins?|lives": "fake, fixture, lifecycle",
    r"plays": "runs",
    r"whereabouts": "location",
    r"that much|the most that": "limit, maximum",
    r"tally|tallies": "aggregated metrics",
    r"pulses?|signs? of life": "heartbeat",
    r"patience|patient|restless(ness)?": "timeout",
    r"set aside|sets aside": "quarantine",
    r"concludes?|tidy|tidies|tidied": "clean up, garbage-collect",
    r"drafts?": "staging directory",
    r"everybody|the world": "public internet",
    r"bill|bills|paid|pays": "cost, charged",
}
"""Pattern of words that this project used in a sense of its own → the field's term."""
EXCEPTIONS = {
    "CycloneDX's name of the document": ("bill of materials",),
    "EC2's term: NetworkCardIndex": (
        "network cards?",
        "cards? 0",
        "other card",
        "of the cards",
        "first cards",
    ),
    "PyTorch's term": ("the world size",),
    "a field of the checkpoint's manifest, whose names are fixed": ("draft",),
    "what the signal is called, not who obeys it": ("save on notice", "^on notice$"),
    "names of EC2's cards": ("^cards?$",),
}
"""Reason → phrases in which a word of the left side is not this project's own."""
COMMENT = re.compile(r"(?:^|\s)# (.*)$", re.MULTILINE)


def _texts(source: str) -> Iterator[str]:
    """Yield the docstrings, comments and defined names of a module, names as separate words."""
    yield from COMMENT.findall(source)
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield " ".join(text.split())
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield re.sub(r"_|(?<=[a-z])(?=[A-Z])", " ", name).strip()
            case ast.Name(id=name, ctx=ast.Store()):
                yield name.replace("_", " ").strip()


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Each text of the packages, with the first file that has it."""
    files = [file for name in PACKAGES for file in sorted((REPOSITORY / name).rglob("*.py"))]
    found: dict[str, str] = {}
    for file in files:
        for text in _texts(file.read_text()):
            found.setdefault(text, str(file.relative_to(REPOSITORY)))
    return found


def test_the_packages_use_the_fields_words(texts: dict[str, str]) -> None:
    allowed = re.compile("|".join(each for phrases in EXCEPTIONS.values() for each in phrases), re.IGNORECASE)
    ours = re.compile("|".join(rf"\b(?:{each})\b" for each in WORDS), re.IGNORECASE)
    found = [
        f"{file}: {match[0]!r} in {text!r}; the field writes: {_term(match[0])}"
        for text, file in texts.items()
        for match in ours.finditer(allowed.sub("", text))
    ]
    assert found == []


def _term(word: str) -> str:
    return next(term for each, term in WORDS.items() if re.fullmatch(each, word, re.IGNORECASE))


def test_each_exception_is_used(texts: dict[str, str]) -> None:
    for phrases in EXCEPTIONS.values():
        for phrase in phrases:
            assert any(re.search(phrase, text, re.IGNORECASE) for text in texts), phrase
