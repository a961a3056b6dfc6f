"""Types of a pipeline's deploy role: who may assume it, and its permissions by resource type."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Literal

import yaml

from infra.errors import InputError, Problem


@dataclass(frozen=True)
class DeclaredResource:
    """A resource that a stack declares."""

    type: str
    name: str
    inputs: Mapping[str, Any]
    urn: str = ""
    """URN, whose type begins with those of its parents."""

    @property
    def kind(self) -> str:
        """The part of the type after the last separator."""
        return self.type.rpartition(":")[2]


@dataclass(frozen=True)
class Pipeline:
    """A project of GitHub or GitLab whose jobs take the role, by tokens of OIDC (`id-token`, `id_tokens`)."""

    service: Literal["github", "gitlab"]
    project: str
    """Path of the project: `owner/name`, `group/project`."""
    read_only: bool = False
    """Whether the role is for previews, which change nothing."""
    branch: str = "main"
    host: str = "gitlab.com"
    """Host of a self-managed GitLab."""
    stack: str = field(kw_only=True)
    """Name of the stack, with which GitHub's environments begin."""
    ids: str = field(default="", kw_only=True)
    """IDs of GitHub's owner and repository, `123/456`, which tokens of new or renamed ones have."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.-]+(/[\w.-]+)+", self.project):
            fix = "write it as in the project's URL; a pattern would admit other projects"
            raise InputError([Problem(f"--{self.service}", self.project, "owner/name, group/project", fix)])
        if self.ids and not re.fullmatch(r"\d+/\d+", self.ids):
            fix = f"gh api repos/{self.project} --jq '\"\\(.owner.id)/\\(.id)\"'"
            raise InputError([Problem("--github-ids", self.ids, "OWNER_ID/REPOSITORY_ID", fix)])

    @property
    def issuer(self) -> str:
        """Issuer of the tokens, without `https://`."""
        return "token.actions.githubusercontent.com" if self.service == "github" else self.host

    @property
    def subjects(self) -> tuple[str, ...]:
        """The claims `sub` of its jobs; with `*` for GitLab's previews, which run on any branch.

        A repository that was created or renamed since 15 July 2026 has IDs in its claim, so that another one
        that takes its name later is refused. While one moves, its tokens have either form.

        Sources: GitHub, "OpenID Connect reference", subject claims of jobs with an environment; GitLab, "ID
        token authentication", token payload.
        """
        if self.service == "github":
            names = [self.project]
            if self.ids:
                names += [
                    "/".join(
                        f"{n}@{i}"
                        for n, i in zip(*(t.split("/") for t in (self.project, self.ids)), strict=True)
                    )
                ]
            kinds = ("preview", "read") if self.read_only else ("production",)
            return tuple(f"repo:{name}:environment:{self.stack}-{kind}" for name in names for kind in kinds)
        return (f"project_path:{self.project}:ref_type:branch:ref:{'*' if self.read_only else self.branch}",)


def rights_of(package: str, prefix: str, declared: Sequence[DeclaredResource]) -> list[str]:
    """Return the rights for the declared resources, from a target's table (`rights.yaml` of `package`).

    A row is a list of rights, or `crud` of a resource type of Azure and further rights as `also`. Raises
    KeyError for a type that the table lacks.
    """
    table = yaml.safe_load(files(package).joinpath("rights.yaml").read_text(encoding="utf-8"))
    types = {each.type for each in declared if each.type.startswith(prefix)}
    rows = [table[each] for each in sorted(types - {f"{prefix}index:Provider"})]
    return sorted({right for row in rows for right in (row if isinstance(row, list) else _spelled(row))})


def _spelled(row: Mapping[str, Any]) -> list[str]:
    return [f"{row['crud']}/{verb}" for verb in ("read", "write", "delete")] + list(row.get("also", ()))


@dataclass(frozen=True)
class DeployRole:
    """Deploy role of a pipeline, which the administrator creates once."""

    trust: Mapping[str, Any]
    """Trust policy in the cloud's format: who may assume the role."""
    rights: Mapping[str, Any]
    """Name → permissions in the cloud's format: a policy, a custom role."""
    condition: Mapping[str, Any] = field(default_factory=dict)
    """Condition of the role's own assignment, in the cloud's format: limits the roles that it may grant."""
    notes: tuple[str, ...] = ()
    """Instructions that the policy documents cannot express."""
