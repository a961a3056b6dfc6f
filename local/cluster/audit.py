"""Audit policy (metadata only) of the embedded cluster, and the API server flags for its audit log."""

from pathlib import Path

POLICY = Path(__file__).with_suffix(".yaml")
FILE = "audit.log"
_MAX_MIB, _BACKUPS, _DAYS = 20, 4, 90
"""Limits of the audit log: 100 MiB in five files, the older ones compressed."""


def flags(folder: Path, policy: Path) -> tuple[str, ...]:
    """Return the API server's flags; only their owner can read the file and its folder."""
    return (
        f"--audit-policy-file={policy}",
        f"--audit-log-path={folder / FILE}",
        f"--audit-log-maxsize={_MAX_MIB}",
        f"--audit-log-maxbackup={_BACKUPS}",
        f"--audit-log-maxage={_DAYS}",
        "--audit-log-compress=true",
    )
