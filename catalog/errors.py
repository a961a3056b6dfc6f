"""Errors of the catalogue: a name that it lacks, and a data file that breaks its schema."""

from collections.abc import Iterable


class UnknownNameError(LookupError):
    """A name that the catalogue lacks, with its position, the allowed names, and the most similar one."""

    def __init__(self, what: str, got: str, known: Iterable[str], path: str) -> None:
        from difflib import get_close_matches  # needed only if a name is wrong

        names = sorted(known)
        near = get_close_matches(got.lower(), [name.lower() for name in names], n=1, cutoff=0.6)
        meant = next((name for name in names if near and name.lower() == near[0]), None)
        self.path = path
        self.got = repr(got)
        self.allowed = f"{what}: {', '.join(names)}"
        choose = "choose one of these; a new one is a row in the data files"
        self.fix = f"did you mean {meant!r}?" if meant else choose
        super().__init__(f"{path}: got {self.got}; allowed: {self.allowed}; {self.fix}")


class DataError(ValueError):
    """A data file breaks its schema."""
