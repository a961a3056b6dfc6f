"""Tables of the command line, without borders."""

from __future__ import annotations

from rich.table import Table


def plain_table(*columns: str) -> Table:
    """Return an empty table with these headings."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column)
    return table
