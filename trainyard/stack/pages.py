"""Generates the reference of stack files, docs/stack-file.md and a page per target, from their schema."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from infra.stackfile.source import STACK_KEY
from trainyard.stack.explain import find
from trainyard.stack.reference import JOB, Schema, name_of, reached, sentence_of, table_of, title_of

COMPLETE = Path(__file__).with_name("complete.yaml")
"""A stack file with comments that has most keys."""
USUAL = (
    "name", "profile", "target.kind", "target.region", "target.zones", "target.access.admins",
    "target.access.public_cidrs", "target.filesystem", "target.training_image", "target.deletion_protection",
    "pools.name", "pools.machine", "pools.nodes", "pools.capacity", "pools.zones", "pools.spot_waiver",
    "pools.accelerator", "storage.checkpoints.size", "storage.object_store.bucket", "queues.flavors.pool",
    "queues.flavors.quota", "teams.name", "teams.queue", "teams.members", "logs.retention_days",
)  # fmt: skip
"""The keys that most people need, in the order of a file."""
INTRODUCTION = (
    "# Stack files\n\n"
    "For platform engineers: a complete file, the keys that most people need, then every key of "
    "`Pulumi.<stack>.yaml` that Trainyard reads. `trainyard stack validate --schema markdown` writes it from "
    "the models; `--schema json` prints the same as JSON Schema. With this "
    "first line an editor with the YAML language server completes and checks keys:\n\n"
    "```yaml\n# yaml-language-server: $schema=schema.json\n```\n\n"
    "The shipped stack files (`stacks`) have that line, and `stacks/schema.json` "
    "beside them. Rules between sections (a job's queue, a machine's region) are checked by "
    "`trainyard stack validate` only.\n\n"
    "Answers to the questions of `pulumi new` are keys such as `trainyard:stack.target.account`. Each "
    "overrides the value at that path of `trainyard:stack`.\n\n"
    "A job is a file of its own, `job.yaml`, with the keys of [Job](#job). `trainyard explain KEY` prints a "
    "key, its default, and that in each profile.\n"
)


def pages(schema: Schema) -> dict[str, str]:
    """Return each page by its name: `stack-file`, and `stack-file-aws` of a target."""
    definitions: Mapping[str, Schema] = schema["$defs"]
    config = schema["properties"]["config"]
    targets = {
        each["if"]["properties"]["kind"]["const"]: name_of(each["then"]["$ref"])
        for each in definitions["Stack"]["properties"]["target"]["allOf"]
    }
    below = {kind: [root, *reached(definitions[root], definitions)] for kind, root in targets.items()}
    num_targets = Counter(name for names in below.values() for name in names)
    of_all = dict.fromkeys(reached({"anyOf": [config, JOB]}, definitions, [*targets.values()]))
    of_all |= dict.fromkeys(name for name, number in num_targets.items() if number > 1)
    own = {kind: [name for name in names if name not in of_all] for kind, names in below.items()}
    files = dict.fromkeys(map(_anchor, of_all), "stack-file")
    files |= {_anchor(name): f"stack-file-{kind}" for kind, names in own.items() for name in names}
    found = {
        "stack-file": [*_beginning(schema), "## config\n", *table_of(config), *_tables(of_all, definitions)]
    }
    for kind, names in own.items():
        title = f"# Stack files: keys of `kind: {kind}`\n\nThe other keys: [stack-file.md](stack-file.md).\n"
        found[f"stack-file-{kind}"] = [title, *_tables(names, definitions)]
    return {name: _linked("\n".join(parts).rstrip() + "\n", name, files) for name, parts in found.items()}


def _beginning(schema: Schema) -> Iterator[str]:
    yield INTRODUCTION
    yield f"## A complete file\n\n```yaml\n{COMPLETE.read_text(encoding='utf-8').strip()}\n```\n"
    yield f"## The keys that most people need\n\nUnder `{STACK_KEY}`:\n"
    yield from ("| key | default | meaning |", "|---|---|---|")
    for path in USUAL:
        forms = find(schema, path)
        default = f"`{forms[0].default}`" if forms[0].default else ""
        meaning = next((form.meaning for form in forms if form.meaning), "one of the targets below")
        yield f"| `{path}` | {default.replace('`required`', '**required**')} | {meaning} |"
    yield ""


def _tables(names: Iterable[str], definitions: Mapping[str, Schema]) -> Iterator[str]:
    for name in names:
        yield f"## {title_of(name)}\n"
        yield f"{sentence_of(definitions[name])}\n"
        yield from table_of(definitions[name])


def _anchor(name: str) -> str:
    return title_of(name).lower()


def _linked(text: str, page: str, files: Mapping[str, str]) -> str:
    """Let links to types on other pages name the page."""

    def link(match: re.Match[str]) -> str:
        file = files.get(match[1], page)
        return match[0] if file == page else f"]({file}.md#{match[1]})"

    return re.sub(r"\]\(#([a-z]+)\)", link, text)
