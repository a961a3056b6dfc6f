import json
import sys
from collections.abc import Iterator
from functools import reduce
from typing import Annotated

import typer

from infra.stackfile import load_job
from infra.stackfile.source import FLEET_KEY, STACK_KEY, read, show
from trainyard.commands.options import JobFile, Since, StackName
from trainyard.forms import SchemaForm
from trainyard.stack.session import Session
from trainyard.stack.team_files import needed_approvals


def validate(
    stack: StackName = "",
    job: JobFile = None,
    expand: Annotated[
        bool, typer.Option(help="Print also what the file leaves out: each default and where it is from.")
    ] = False,
    since: Since = "",
    schema: Annotated[
        SchemaForm | None,
        typer.Option(
            metavar="FORM", help="Print the schema of all stack files instead: json, markdown, package."
        ),
    ] = None,
) -> None:
    """Check the stack file, and a job that is to run on it; report every problem with its line.

    --schema json prints the JSON Schema for editors, markdown the reference page, package the schema of the
    component package (docs/package.md); all from the same models.

    [dim]trainyard stack validate -s aws --job job.yaml
    trainyard stack validate --schema json > stacks/schema.json
    # yaml-language-server: $schema=schema.json     (the first line of a stack file)[/]
    """
    if schema is not None:
        _print_schema(schema)
        return
    from trainyard.stack.state import declared_backend

    session = Session(stack)
    if session.is_fleet:
        workers = ", ".join(f"{worker.name} in {worker.place.name}" for worker in session.fleet.workers)
        session.console.print(f"[green]✓[/] {session.stack_file.name} is valid: {workers}", highlight=False)
        _print_overrides(session, FLEET_KEY)
        return
    pools = ", ".join(f"{pool.name} × {pool.num_nodes}" for pool in session.stack.pools)
    declared_backend(session.stack_file)
    session.console.print(f"[green]✓[/] {session.stack_file.name} is valid: {pools}", highlight=False)
    _print_overrides(session, STACK_KEY)
    for line in (*_advice(session), *needed_approvals(session, since)):
        session.console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    if job is not None:
        found = load_job(job, stack=session.stack)
        size = f"{found.num_nodes} × {found.accelerators_per_node} accelerators"
        session.console.print(f"[green]✓[/] {job.name} can run on it: {size}", highlight=False)
    if expand:
        _print_defaults(session)


def _print_schema(form: SchemaForm) -> None:
    if form is SchemaForm.PACKAGE:
        from trainyard.component import schema as of_package

        sys.stdout.write(of_package.as_text(of_package.package_schema()))
        return
    from trainyard.stack.pages import pages
    from trainyard.stack.schema import as_text, file_schema

    found = file_schema()
    sys.stdout.write(as_text(found) if form is SchemaForm.JSON else "\n".join(pages(found).values()))


def _advice(session: Session) -> Iterator[str]:
    """What policies ask of the file and it does not have: the organisation's tags, checkpoint times."""
    target, file = session.stack.target, session.paths.organisation
    asked = json.loads(file.read_text(encoding="utf-8")).get("cost-tags") if file else None
    required = asked.get("required", ()) if isinstance(asked, dict) else ()
    key = "labels" if hasattr(target, "labels") else "tags"
    if hasattr(target, key) and (missing := [name for name in required if name not in getattr(target, key)]):
        yield f"target.{key}: no {', '.join(missing)}, which the policy cost-tags of {file} requires"
    for pool in session.stack.pools:
        is_real = pool.accelerator is not None and pool.accelerator.model != "simulated"
        if pool.is_spot and is_real and pool.checkpoint_seconds is None:
            yield (
                f"pools.{pool.name}: no checkpoint_seconds, for spot-checkpoint-time; a job measures it:"
                " `seconds` of the events `checkpoint` in its metrics.jsonl"
            )


def _print_defaults(session: Session) -> None:
    """Print each key that the file leaves out and that depends on others, as a line of YAML."""
    from infra.stackfile.defaults import completed
    from infra.stackfile.stack_file import stack_name

    found = completed(read(session.stack_file)[0], stack_name(session.stack_file))
    for path, origin in found.origins.items():
        value = json.dumps(reduce(lambda data, key: data[key], path, found.data))
        session.console.print(
            f"  {show(path)}: {value}  # {origin}", highlight=False, markup=False, soft_wrap=True
        )


def _print_overrides(session: Session, key: str) -> None:
    """Print the answers (`trainyard:stack.PATH`) that differ from the section's values."""
    _, source = read(session.stack_file, key)
    for each in source.overrides:
        session.console.print(f"  {each}", highlight=False, markup=False, soft_wrap=True)
