"""Tables of the command line keep every cell whole, on narrow terminals and in files."""

from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live

from engine.tables import PlainTable
from infra.stackfile import load
from tests.infra.plan import stack_file
from trainyard.cost.price import show_price
from trainyard.forms import ReportForm
from trainyard.jobs.listing import JobRow, _table

NAME = "a-name-of-a-job-that-is-almost-as-long-as-kubernetes-permits-0"
NODES = "ip-10-0-123-45.us-east-2.compute.internal, ip-10-0-123-46.us-east-2.compute.internal"


def shown(table: PlainTable, width: int, *, terminal: bool = True) -> list[str]:
    output = StringIO()
    table.show(Console(file=output, width=width, force_terminal=terminal, color_system=None))
    return output.getvalue().splitlines()


def jobs(name: str = "tune", nodes: str = "spot-0") -> PlainTable:
    table = PlainTable("job", "team", "state", "GPUs", "flavor", "nodes")
    table.add_row(name, "research", "[green]running[/]", "16", "on-demand", nodes)
    table.add_row("other", "speech", "queued", "–", "–", "")
    return table


def test_a_table_that_fits_has_a_line_per_row() -> None:
    assert shown(jobs(), 80) == [
        "job    team      state    GPUs  flavor     nodes",
        "tune   research  running  16    on-demand  spot-0",
        "other  speech    queued   –     –",
    ]


def test_outside_of_a_terminal_a_row_is_one_line_however_long() -> None:
    _, first, _ = shown(jobs(NAME, NODES), 80, terminal=False)
    assert first == f"{NAME}  research  running  16    on-demand  {NODES}"


def test_a_last_column_that_is_too_wide_for_a_row_follows_below_it() -> None:
    assert shown(jobs(nodes=NODES), 80) == [
        "job    team      state    GPUs  flavor     nodes",
        "tune   research  running  16    on-demand",
        "  nodes ip-10-0-123-45.us-east-2.compute.internal,",
        "  ip-10-0-123-46.us-east-2.compute.internal",
        "other  speech    queued   –     –",
    ]


def test_columns_that_do_not_fit_follow_below_with_their_headings() -> None:
    assert shown(jobs(NAME), 80) == [
        f"job{' ' * (len(NAME) - 1)}team",
        f"{NAME}  research",
        "  state running  GPUs 16  flavor on-demand  nodes spot-0",
        f"other{' ' * (len(NAME) - 3)}speech",
        "  state queued  GPUs –  flavor –",
    ]


@pytest.mark.parametrize("width", [1, 10, 40, 80, 120, 300])
def test_no_cell_is_lost_or_broken_at_any_width(width: int) -> None:
    words = {word for line in shown(jobs(NAME, NODES), width) for word in line.split()}
    cells = (NAME, "research", "running", "16", "on-demand", *NODES.split(), "other", "speech", "queued")
    assert set(cells) <= words


def test_a_table_of_names_and_values_has_no_headings() -> None:
    table = PlainTable("", "", right=())
    table.add_row("weights (sha256)", "0" * 64)
    table.add_row("attempts", "2")
    assert shown(table, 80) == ["weights (sha256)", f"  {'0' * 64}", "attempts          2"]


def test_a_column_is_aligned_to_the_right() -> None:
    table = PlainTable("after", "what", right=["after"])
    table.add_row("1.5 s", "a")
    table.add_row("12.5 s", "b")
    assert shown(table, 80) == [" after  what", " 1.5 s  a", "12.5 s  b"]


def test_a_live_table_is_folded_too() -> None:
    output = StringIO()
    console = Console(file=output, width=80, force_terminal=True, color_system=None)
    with Live(console=console, auto_refresh=False) as live:
        live.update(jobs(NAME, NODES), refresh=True)
    assert NAME in output.getvalue() and NODES.split(", ")[1] in output.getvalue()


@pytest.mark.parametrize("package", ["engine", "infra", "local", "trainyard"])
def test_every_table_of_the_command_is_such_a_table(package: str) -> None:
    """Tables of rich cut cells to the width, outside of a terminal to 80 columns."""
    modules = (Path(__file__).parents[2] / package).rglob("*.py")
    assert not [str(module) for module in modules if "rich.table" in module.read_text()]


def test_jobs_and_prices_are_whole_at_80_columns() -> None:
    row = JobRow(NAME, "research", "running", 16, 2, "spot", "high", 3, datetime.now(UTC), "", "", (NODES,))
    assert {NAME, "spot", "high", *NODES.split()} <= set(" ".join(shown(_table([row]), 80)).split())
    output = StringIO()
    show_price(load(stack_file("aws")), ReportForm.TEXT, Console(file=output, width=80))
    wide = StringIO()
    show_price(load(stack_file("aws")), ReportForm.TEXT, Console(file=wide, width=400))
    assert output.getvalue() == wide.getvalue(), "a file is as wide as it must be"
