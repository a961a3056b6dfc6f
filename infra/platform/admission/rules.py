"""Reads the admission rules for objects of teams: a CEL expression and an error message for each."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

import catalog
from infra.common import names
from infra.stackfile.job_validators import SECRET_VALUE

RULES = Path(__file__).with_name("rules.yaml")
Of = Literal["any", "whole", "pod", "created-pod"]
"""Objects of a rule. `any`: pods, pod templates and a TrainJob's overrides of its runtime. `whole`: pods
and templates without those overrides. `pod`: pods only, since a template does not name the user who
creates its pods. `created-pod`: pods only, and only when they are created."""


@dataclass(frozen=True)
class AdmissionRule:
    """One rule: a condition, and the message for a pod that violates it."""

    holds: str
    """CEL expression that must be true."""
    message: str
    """Error message: the faulty field first, then the next step."""
    of: Of = "any"
    only_with: str = ""
    """List of the stack without which there is no such rule; empty: there always is."""


VOLUME_KINDS = (
    *("name", "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image"),
    *("persistentVolumeClaim", "projected", "secret"),
)
"""Keys of a volume that a pod may have."""
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"
_CONSTANTS: Mapping[str, str | Sequence[str]] = {
    "checkpoint_annotation": names.CHECKPOINT_ANNOTATION,
    "device_variables": names.DEVICE_VARIABLES,
    "endpoint_variable": catalog.ENDPOINT_VARIABLE,
    "job_controller": JOB_CONTROLLER,
    "region": catalog.REGION,
    "region_in_host": catalog.REGION_IN_HOST,
    "region_variables": catalog.REGION_VARIABLES,
    "secret_value": repr(SECRET_VALUE.pattern),
    "training_env": names.TRAINING_ENV,
    "volume_kinds": VOLUME_KINDS,
}
"""Terms of the rules that other modules have."""


@cache
def rules_of(table: str) -> tuple[AdmissionRule, ...]:
    """Return the rules of a table with their terms: a list is CEL in a condition, words in a message."""
    terms = {**_CONSTANTS, **_tables()["terms"]}
    return tuple(
        replace(
            rule,
            holds=_filled(rule.holds, terms, lambda entries: repr([*entries])),
            message=_filled(rule.message, terms, ", ".join),
        )
        for rule in (AdmissionRule(**row) for row in _tables()[table].values())
    )


@cache
def _tables() -> dict[str, dict[str, Any]]:
    tables: dict[str, dict[str, Any]] = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    return tables


def _filled(
    text: str, terms: Mapping[str, str | Sequence[str]], listed: Callable[[Sequence[str]], str]
) -> str:
    """Put terms in the place of `${NAME}`; a term may have terms itself."""

    def value_of(found: re.Match[str]) -> str:
        term = terms[found[1]]
        return _filled(term, terms, listed) if isinstance(term, str) else listed(term)

    return re.sub(r"\$\{(\w+)\}", value_of, text)
