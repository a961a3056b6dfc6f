import sys
from typing import Annotated

import typer

from trainyard.commands.options import ReportOutput
from trainyard.forms import ReportForm


def schema(
    output: ReportOutput = ReportForm.JSON,
    package: Annotated[bool, typer.Option(help="Print the schema of the component package instead.")] = False,
) -> None:
    """Print the JSON Schema of stack files for editors; with `-o markdown` the reference page.

    With --package the schema of the component package (docs/package.md), from the same models.

    [dim]trainyard schema > stacks/schema.json
    # yaml-language-server: $schema=schema.json     (the first line of a stack file)[/]
    """
    if package:
        from trainyard.component import schema as of_package

        sys.stdout.write(of_package.as_text(of_package.package_schema()))
        return
    from trainyard.stack.reference import page
    from trainyard.stack.schema import as_text, file_schema

    found = file_schema()
    sys.stdout.write(as_text(found) if output is ReportForm.JSON else page(found))
