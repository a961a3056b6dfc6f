"""`read_logs.py`, which prints and follows stored logs, on files in the collector's form."""

import subprocess
import sys
from pathlib import Path

import pytest

from infra.platform.programs import program
from tests.processes import TIMEOUT_SECONDS

FIRST, SECOND = "digits-node-0-0-abcde_u1_spot-0", "digits-node-0-1-bbbbb_u2_spot-1"
AGAIN = "digits-node-0-0-ccccc_u3_spot-2"
START = 1795514400
"""2026-11-24T10:00:00Z"""


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    keep(tmp_path, FIRST, "00Z stdout F one", "02.3Z stderr F three")
    keep(tmp_path, SECOND, "01Z stdout F two  ", "02Z stdout F ")
    keep(tmp_path, AGAIN, "09Z stdout F again")
    return tmp_path


def keep(folder: Path, pod: str, *lines: str, file: str = "node.0.log") -> None:
    (folder / pod).mkdir(exist_ok=True)
    text = "".join(f"2026-11-24T10:00:{line}\n" for line in lines)
    with (folder / pod / file).open("a") as log:
        log.write(text)


def command(logs: Path, *arguments: object) -> list[str]:
    text = program("read_logs.py").replace('"/logs"', repr(str(logs)))
    return [sys.executable, "-c", text, *map(str, arguments)]


def read(logs: Path, *chosen: object, job: str = "digits", since: int = START) -> list[str]:
    show = command(logs, job, since, "show", *chosen)
    done = subprocess.run(show, capture_output=True, text=True, check=True, timeout=TIMEOUT_SECONDS)
    return done.stdout.splitlines()


def texts(lines: list[str]) -> list[str]:
    return [line.split(" ", 4)[4] for line in lines]


def test_the_nodes_of_an_attempt_are_merged_by_time_and_attempts_are_separate(logs: Path) -> None:
    found = read(logs)
    assert texts(found) == ["one", "two  ", "", "three", "again"]
    assert [line.split(" ")[:3] for line in found] == [
        ["0", "0", "spot-0"],
        ["0", "1", "spot-1"],
        ["0", "1", "spot-1"],
        ["0", "0", "spot-0"],
        ["1", "0", "spot-2"],
    ]


def test_one_node_of_one_attempt_is_read_by_itself(logs: Path) -> None:
    assert texts(read(logs, 0, 0)) == ["one", "three"]
    assert texts(read(logs, -1, 1)) == ["again"]
    assert read(logs, 7, 0) == []


def test_jobs_of_other_names_and_of_earlier_times_are_left_out(logs: Path) -> None:
    keep(logs, "digits-2-node-0-0-ddddd_u4_spot-0", "03Z stdout F another")
    assert "another" not in texts(read(logs))
    assert texts(read(logs, since=START + 5)) == ["again"]


def test_partial_lines_of_the_container_runtime_are_joined_by_stream(logs: Path) -> None:
    keep(logs, AGAIN, "10Z stdout P lo", "10.1Z stderr F err", "10.2Z stdout P n", "10.3Z stdout F g")
    assert texts(read(logs, 0, 1)) == ["again", "err", "long"]


def test_rotated_files_that_were_copied_at_once_are_sorted(logs: Path) -> None:
    """The runtime omits trailing zeros of a time."""
    keep(logs, AGAIN, "10.5Z stdout F a", "12Z stdout F d", "10.55Z stdout F b", "13Z stdout F e")
    keep(logs, AGAIN, "11Z stdout F c")
    assert texts(read(logs, 0, 1)) == ["again", "a", "b", "c", "d", "e"]


def test_a_line_that_was_copied_twice_is_printed_once_and_equal_lines_are_not(logs: Path) -> None:
    lines = ("10Z stdout F same", "11Z stdout F same", "11.5Z stdout F last")
    keep(logs, AGAIN, *lines)
    keep(logs, AGAIN, *lines[1:], "12Z stdout F more")
    assert texts(read(logs, 0, 1)) == ["again", "same", "same", "last", "more"]


def test_bytes_are_printed_as_they_are(logs: Path) -> None:
    with (logs / AGAIN / "node.0.log").open("ab") as log:
        log.write(b"2026-11-24T10:00:20Z stdout F \xff\x00\r x\n2026-11-24T10:00:21Z stdout F torn")
    done = subprocess.run(command(logs, "digits", START, "show", 0, 1), capture_output=True, check=True)
    assert done.stdout.endswith(b" \xff\x00\r x\n"), "half a line is the next look's"


def test_the_launcher_of_an_mpi_job_is_its_first_node(logs: Path) -> None:
    keep(logs, "mpi-launcher-0-0-aaaaa_u5_spot-0", "00Z stdout F launcher")
    keep(logs, "mpi-node-0-0-aaaaa_u6_spot-1", "01Z stdout F worker")
    assert [line.split(" ")[1] for line in read(logs, job="mpi")] == ["0", "1"]


def test_followers_get_new_lines_and_new_attempts_until_they_stop(logs: Path) -> None:
    follow = command(logs, "digits", START, "follow", 0)
    with subprocess.Popen(follow, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout
        assert reader.stdin
        assert texts([reader.stdout.readline().rstrip() for _ in range(3)]) == ["one", "three", "again"]
        keep(logs, AGAIN, "10Z stdout F later")
        keep(logs, "digits-node-0-0-eeeee_u9_spot-0", "12Z stdout F third")
        new = [reader.stdout.readline().rstrip() for _ in range(2)]
        assert texts(new) == ["later", "third"]
        assert [line[0] for line in new] == ["1", "2"]
        reader.stdin.close()
        assert reader.wait(TIMEOUT_SECONDS) == 0
