"""Tables of the command line, without borders, which keep all their columns and whole names at any width."""

import re
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

_GAP, _INDENT = "  ", "  "


class PlainTable:
    """A table whose cells are console markup.

    Outside of a terminal a row is one line, however long. On a terminal the columns that do not fit follow
    on lines below the row, each cell after its heading. Text is wrapped between words only.
    """

    def __init__(self, *columns: str, right: Sequence[str] = ()) -> None:
        """Take the headings; without any text in them none are shown.

        Args:
            columns: headings, of which the first names the row.
            right: columns that are aligned to the right.
        """
        self._columns, self._right = columns, right
        self._rows: list[list[Text]] = []

    @property
    def row_count(self) -> int:
        return len(self._rows)

    def add_row(self, *cells: str | Text) -> None:
        """Add a row, a cell for each column."""
        assert len(cells) == len(self._columns), "a cell for each column"
        texts = (Text.from_markup(each) if isinstance(each, str) else each.copy() for each in cells)
        self._rows.append(list(texts))

    def show(self, console: Console) -> None:
        """Print it."""
        for line in self._lines(console.width if console.is_terminal else None):
            console.print(line, soft_wrap=True, highlight=False)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render it for a live display, which only a terminal has."""
        yield from self._lines(options.max_width)

    def _lines(self, width: int | None) -> Iterator[Text]:
        headings = [Text(each, "dim") for each in self._columns]
        shown = [headings] if any(self._columns) else []
        widths = [
            max(row[index].cell_len for row in [headings, *self._rows]) for index in range(len(headings))
        ]
        fitting = _num_fitting(widths, width)
        for row in [*shown, *self._rows]:
            inline = self._joined(row, widths)
            # Only the last column may be too wide for some rows and fit in others.
            if fitting >= len(row) - 1 and (width is None or inline.cell_len <= width):
                yield inline
                continue
            first = self._joined(row[:fitting], widths)
            if first.plain:
                yield first
            if row is not headings and width is not None:
                yield from _below(zip(headings[fitting:], row[fitting:], strict=True), width)

    def _joined(self, cells: Sequence[Text], widths: Sequence[int]) -> Text:
        line = Text(no_wrap=True, overflow="ignore")
        for heading, cell, wide in zip(self._columns, cells, widths, strict=False):
            padding = " " * (wide - cell.cell_len)
            line.append(_GAP if line.plain else "")
            line.append_text(Text(padding) + cell if heading in self._right else cell + Text(padding))
        line.rstrip()
        return line


def _num_fitting(widths: Sequence[int], width: int | None) -> int:
    """Return how many columns fit on a line, at least one."""
    if width is None:
        return len(widths)
    ends = [sum(widths[: number + 1]) + number * len(_GAP) for number in range(len(widths))]
    return max(1, sum(end <= width for end in ends))


def _below(cells: Iterator[tuple[Text, Text]], width: int) -> Iterator[Text]:
    """Yield lines with the cells that have content, as many of them on each as fit."""
    line = Text()
    for heading, cell in cells:
        if not cell.plain:
            continue
        part = heading + Text(" " if heading.plain else "") + cell
        if line.plain and len(_INDENT) + line.cell_len + len(_GAP) + part.cell_len > width:
            yield from _wrapped(line, width)
            line = Text()
        line = line + Text(_GAP if line.plain else "") + part
    if line.plain:
        yield from _wrapped(line, width)


def _wrapped(text: Text, width: int) -> Iterator[Text]:
    """Yield the text in indented lines, divided between words; a longer word has a line for itself."""
    breaks, used = [], len(_INDENT)
    for word in re.finditer(r"\S+\s*", text.plain):
        if used > len(_INDENT) and used + cell_len(word[0].rstrip()) > width:
            breaks.append(word.start())
            used = len(_INDENT)
        used += cell_len(word[0])
    for line in text.divide(breaks):
        line.rstrip()
        yield Text(_INDENT, no_wrap=True, overflow="ignore") + line
