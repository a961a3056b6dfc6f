"""The programs that containers run, executed with their absolute paths mapped to a folder of the test."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from infra.platform import programs
from infra.platform.base import HOME
from infra.platform.jobs.runtimes import EX_TEMPFAIL
from infra.platform.programs import on_fabric, program
from tests.processes import TIMEOUT_SECONDS, capture, wait_for
from tests.tables import table

FOLDER = Path(programs.__file__).parent
SHELL = sorted(path.name for path in FOLDER.glob("*.sh"))
PYTHON = sorted(path.name for path in FOLDER.glob("[a-z]*.py"))
RANK = {"OMPI_COMM_WORLD_RANK": "0"}


def tool(folder: Path, name: str, body: str = "") -> Path:
    """Create a fake command in a folder: it records its call, and then runs `body`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f'#!/bin/sh\necho "{name} $*" >> "{folder}/calls"\n{body}\n')
    path.chmod(0o755)
    return path


def calls(folder: Path) -> list[str]:
    log = folder / "calls"
    return log.read_text().splitlines() if log.exists() else []


def run(text: str, tools: Path, *, shell: str = "sh", moved: Mapping[str, Path] | None = None) -> int:
    """Run a shell program with fake commands, and with other folders in place of the node's."""
    for path, instead in (moved or {}).items():
        assert path in text
        text = text.replace(path, str(instead))
    environment = {"PATH": f"{tools}:{os.environ['PATH']}"}
    return subprocess.run(
        [shell, "-c", text], env=environment, check=False, timeout=TIMEOUT_SECONDS
    ).returncode


def test_every_program_begins_with_its_purpose_and_what_runs_it() -> None:
    assert SHELL
    assert PYTHON
    for name in SHELL + PYTHON:
        first, second, *_ = (FOLDER / name).read_text().splitlines()
        assert first == ("#!/usr/bin/env python3" if name in PYTHON else first)
        assert first in {"#!/usr/bin/env python3", "#!/bin/sh", "#!/bin/bash"}
        assert second.startswith("# ")
        assert not program(name).startswith("#")


@pytest.mark.parametrize("name", SHELL)
def test_shell_programs_have_no_fault_that_shellcheck_finds(name: str) -> None:
    found = capture([Path(sys.executable).with_name("shellcheck"), FOLDER / name])
    assert not found.stdout


@contextmanager
def worker(tmp_path: Path, body: str) -> Iterator[subprocess.Popen[str]]:
    """Start the worker of an MPI job, with a fake sshd that runs `body`."""
    sshd = tool(tmp_path, "sshd", body)
    text = program("serve_ssh.py").replace("/usr/sbin/sshd", str(sshd))
    environment = {"NCCL_DEBUG": "WARN", "OTHER": "no", "PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", text, "NCCL_DEBUG", "PATH", "MISSING"]
    with subprocess.Popen(command, env=environment, text=True) as process:
        yield process


def test_sshd_is_started_with_the_given_variables(tmp_path: Path) -> None:
    with worker(tmp_path, "exit 3") as process:
        assert process.wait(TIMEOUT_SECONDS) == 3
    (call,) = calls(tmp_path)
    assert call.startswith(f"sshd -De -f {HOME}/.sshd_config -o SetEnv=")
    assert 'NCCL_DEBUG="WARN" PATH=' in call
    assert "OTHER" not in call
    assert "MISSING" not in call


def test_a_terminated_worker_exits_with_sshds_code(tmp_path: Path) -> None:
    with worker(tmp_path, "exec sleep 600") as process:
        wait_for(lambda: calls(tmp_path) and handles(process.pid, signal.SIGTERM))
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_SECONDS) == EX_TEMPFAIL


def test_only_ranks_are_terminated_and_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """`/proc` is faked, since the program would also terminate the ranks of other tests on this host."""
    child = "import subprocess, time; subprocess.Popen(['sleep', '600']); print(flush=True); time.sleep(600)"
    late = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: (time.sleep(1), sys.exit()))"
    late += "; print(flush=True); time.sleep(600)"
    environment = dict(os.environ)
    ranks = [
        subprocess.Popen([sys.executable, "-c", text], env={**environment, **RANK}, stdout=subprocess.PIPE)
        for text in (child, late)
    ]
    other = subprocess.Popen(["sleep", "600"])
    for rank in ranks:
        assert rank.stdout
        rank.stdout.readline()
    [grandchild] = _children(ranks[0].pid)
    listed = [*(str(each.pid) for each in (*ranks, other)), grandchild, "self", "999999999"]

    def processes(_: str) -> list[str]:
        for rank in ranks:
            rank.poll()  # reaps the process, as the pod's first process does
        if all(rank.returncode is not None for rank in ranks):
            with suppress(ProcessLookupError):  # it gets no SIGTERM, and outlives its parent
                os.kill(int(grandchild), signal.SIGKILL)
        return [each for each in listed if Path(f"/proc/{each}").exists()]

    monkeypatch.setattr(os, "listdir", processes)
    try:
        started = time.monotonic()
        exec(compile(program("end_ranks.py"), "end_ranks.py", "exec"), {})
        assert time.monotonic() - started >= 1
        assert [rank.wait(TIMEOUT_SECONDS) for rank in ranks] == [-signal.SIGTERM, 0]
        assert other.poll() is None
    finally:
        with suppress(ProcessLookupError):  # it has the pipes of its parent, which are read to their end
            os.kill(int(grandchild), signal.SIGKILL)
        for each in (*ranks, other):
            each.kill()
            each.communicate()


def handles(process: int, number: signal.Signals) -> bool:
    """Whether the process has a handler for the signal."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    caught = next(line.split()[1] for line in lines if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (number - 1) & 1)


def _children(process: int) -> list[str]:
    return Path(f"/proc/{process}/task/{process}/children").read_text().split()


def test_a_launcher_waits_until_its_name_resolves(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def look_up(name: str, _: None) -> None:
        asked.append(name)
        if len(asked) < 3:
            raise socket.gaierror

    waited: list[float] = []
    monkeypatch.setattr(socket, "getfqdn", lambda: "job-launcher-0-0.job.team-a.svc.cluster.local")
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(time, "sleep", waited.append)
    exec(compile(program("wait_for_dns.py"), "wait_for_dns.py", "exec"), {})
    assert asked == ["job-launcher-0-0.job"] * 3
    assert waited == [0.5, 0.5]


@pytest.mark.parametrize(("answers_at", "status", "tries"), [(1, 0, 1), (3, 0, 3), (9, 1, 4)])
def test_a_pytorch_worker_waits_for_a_name(tmp_path: Path, answers_at: int, status: int, tries: int) -> None:
    tool(tmp_path, "getent", f'[ "$(grep -c getent "{tmp_path}/calls")" -ge {answers_at} ]')
    tool(tmp_path, "sleep")
    text = program("wait_for_master.sh").replace("{{.MaxTries}}", "4").replace("{{.MasterAddr}}", "master-0")
    assert run(text, tmp_path) == status
    assert calls(tmp_path).count("getent hosts master-0") == tries


def test_nccl_gets_what_the_fabrics_script_sets_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "nccl.conf"
    text = program("write_nccl_settings.sh", setup="export NCCL_NET=gIB OTHER=1", file=str(file))
    assert run(text, tmp_path, shell="bash") == 0
    assert file.read_text() == "NCCL_NET=gIB\n"
    text = program("write_nccl_settings.sh", setup="source /no/such/script.sh", file=str(file))
    assert run(text, tmp_path, shell="bash") != 0


@pytest.mark.parametrize(("nodes", "network"), [("1", ""), ("2", "IB"), ("", "IB")])
def test_nccl_chooses_the_network_of_a_job_of_one_node(nodes: str, network: str) -> None:
    command = [*on_fabric("ib-ndr"), "sh", "-c", 'echo "$NCCL_NET/$*"', "sh", "a b"]
    environment = {"PATH": os.environ["PATH"], "NCCL_NET": "IB", "PET_NNODES": nodes}
    started = capture(command, env=environment, timeout=TIMEOUT_SECONDS)
    assert (started.returncode, started.stdout) == (0, f"{network}/a b\n")


@pytest.mark.parametrize(("own", "searched"), [("", "{}"), ("/opt/lib:/usr/lib", "/opt/lib:/usr/lib:{}")])
def test_the_drivers_folder_follows_those_of_the_image(tmp_path: Path, own: str, searched: str) -> None:
    command = [*on_fabric("tcp"), "sh", "-c", 'echo "$LD_LIBRARY_PATH/$*"', "sh", "a b"]
    command = [each.replace("/usr/local/nvidia/lib64", str(tmp_path)) for each in command]
    environment = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": own}

    def output() -> str:
        return capture(command, env=environment, check=True).stdout

    assert output() == f"{own}/a b\n", "only GKE has such a folder"
    (tmp_path / "libcuda.so.1").touch()
    assert output() == f"{searched.format(tmp_path)}/a b\n"


@pytest.mark.parametrize(
    ("name", "plugin", "onto"),
    [
        ("install_gib.sh", "gib", "host/home/kubernetes/bin/nvidia/lib64"),
        ("install_tcpxo.sh", "tcpxo", "usr/local/nvidia/lib64"),
    ],
)
def test_an_nccl_plugin_is_installed_on_the_node(tmp_path: Path, name: str, plugin: str, onto: str) -> None:
    library = tmp_path / f"var/lib/{plugin}/lib64/libnccl.so"
    library.parent.mkdir(parents=True)
    library.touch()
    for mounted in ("host/home/kubernetes/bin/nvidia/lib64", "host/home/kubernetes/bin/gib", "usr/local"):
        (tmp_path / mounted).mkdir(parents=True)
    entry = tool(tmp_path / "scripts", "container_entry.sh")
    moved = {"/scripts": entry.parent, "/var/lib": tmp_path / "var/lib"}
    moved |= {"/host": tmp_path / "host"} if plugin == "gib" else {"/usr/local": tmp_path / "usr/local"}
    assert run(program(name), tmp_path, moved=moved) == 0
    assert (tmp_path / onto / "libnccl.so").exists()
    assert calls(tmp_path / "scripts")[0].startswith("container_entry.sh install")
    tool(tmp_path / "scripts", "container_entry.sh", "exit 1")
    assert run(program(name), tmp_path, moved=moved) != 0


def test_only_the_windows_of_gpu_nics_are_opened(tmp_path: Path) -> None:
    """It runs twice, as after a restart of the pod, when the firewall rule exists."""
    devices, windows, tools = tmp_path / "pci", tmp_path / "windows", tmp_path / "tools"
    for name, vendor, device in (("0000:01:00.0", "0x1ae0", "0x0084"), ("0000:02:00.0", "0x10de", "0x2330")):
        (devices / name).mkdir(parents=True)
        (devices / name / "vendor").write_text(f"{vendor}\n")
        (devices / name / "device").write_text(f"{device}\n")
    tool(tools, "iptables", f'[ "$1" != -C ] || [ "$(grep -c -- -I "{tools}/calls")" -gt 0 ]')
    tool(tools, "modprobe")
    tool(tools, "umount", "exit 1")
    tool(tools, "mount", 'cp "$2"/* "$3" && touch "$3/resource0" && chmod 600 "$3/resource0"')
    moved = {
        "/sys/bus/pci/devices": devices,
        "/dev/aperture_devices": windows,
        "/sbin/iptables": tools / "iptables",
    }
    for _ in range(2):
        assert run(program("open_tcpxo.sh"), tools, moved=moved) == 0
    assert [each.name for each in windows.iterdir()] == ["0000:01:00.0"]
    assert (windows / "0000:01:00.0/resource0").stat().st_mode & 0o777 == 0o666
    assert calls(tools).count("iptables -I INPUT -p tcp -j ACCEPT") == 1
    assert calls(tools).count("modprobe import-helper") == 2


def test_amds_driver_is_installed_once_and_loaded_each_time(tmp_path: Path) -> None:
    host, tools = tmp_path / "host", tmp_path / "tools"
    (host / "etc/apt/sources.list.d").mkdir(parents=True)
    tool(tools, "apt-get")
    tool(tools, "wget", 'touch "$2"')
    tool(tools, "chroot", f'[ "$2" != dpkg ] || grep -q "install -y amdgpu-dkms" "{tools}/calls"')
    for _ in range(2):
        assert run(program("install_amdgpu.sh"), tools, moved={"/host": host}) == 0
    called = calls(tools)
    assert sum("install -y amdgpu-dkms" in each for each in called) == 1
    assert called.count(f"chroot {host} modprobe amdgpu") == 2
    loaded = called.index(f"chroot {host} modprobe amdgpu")
    assert called[loaded - 1] == f"chroot {host} udevadm control --reload"
    assert called[loaded + 1].startswith(f"chroot {host} udevadm trigger "), "devices that were there before"
    rules = (host / "etc/udev/rules.d/70-amdgpu.rules").read_text().splitlines()
    assert [rule.rpartition(", ")[2] for rule in rules] == ['MODE="0666"'] * 2
    (source,) = (host / "etc/apt/sources.list.d").iterdir()
    assert source.read_text().startswith(
        "deb [arch=amd64 signed-by=/etc/apt/keyrings/rocm.asc] https://repo."
    )


def test_a_staged_dataset_is_in_the_folders_of_its_readers_alone(tmp_path: Path) -> None:
    staged, views = tmp_path / "datasets", tmp_path / "views"
    (staged / "pile" / "v1" / "part").mkdir(parents=True)
    (staged / "pile" / "v1" / "part" / "a.bin").write_bytes(b"data")
    (staged / "pile" / "v1" / "latest").symlink_to("part/a.bin")

    def show(readers: str, others: str) -> None:
        where = [str(staged), str(views), "pile/v1", readers, others]
        subprocess.run(
            [sys.executable, "-c", program("show_dataset.py"), *where], check=True, timeout=TIMEOUT_SECONDS
        )

    (views / "vision" / "pile" / "v1.part").mkdir(parents=True)  # left by a Job that was stopped
    for _ in range(2):
        show("vision speech", "robotics")
        assert sorted(path.name for path in views.iterdir()) == ["speech", "vision"]
        file = views / "vision" / "pile" / "v1" / "part" / "a.bin"
        assert file.samefile(staged / "pile" / "v1" / "part" / "a.bin")
        assert (views / "speech" / "pile" / "v1" / "latest").read_bytes() == b"data"
    show("vision", "speech robotics")
    assert not list((views / "speech").iterdir())
    assert sorted(path.name for path in (views / "vision" / "pile").iterdir()) == ["v1"]
    assert file.samefile(staged / "pile" / "v1" / "part" / "a.bin")


SECOND_OF_TWO_NODES = {
    "PET_NNODES": "2",
    "PET_NODE_RANK": "1",
    "PET_NPROC_PER_NODE": "4",
    "PET_MASTER_ADDR": "tune-node-0-0.tune",
    "PET_MASTER_PORT": "29400",
}


def joined(folder: Path, *launcher: str) -> str:
    """Start a launcher on the second of two nodes; return the arguments that it gets."""
    tool(folder, launcher[0], 'case $1 in --hostfile=*) cp "${1#*=}" "${0%/*}/hosts" ;; esac')
    command = ["sh", "-c", program("join_nodes.sh"), "join_nodes", *launcher]
    path = f"{folder}:{os.environ['PATH']}"
    environment = {**SECOND_OF_TWO_NODES, "PATH": path, "TMPDIR": str(folder)}
    subprocess.run(command, env=environment, check=True, timeout=TIMEOUT_SECONDS)
    [call] = calls(folder)
    return call


@pytest.mark.parametrize(("arguments", "added"), table(__file__))
def test_accelerate_gets_the_address_of_the_first_node(tmp_path: Path, arguments: str, added: str) -> None:
    assert joined(tmp_path, "accelerate", "launch", *arguments.split()) == (
        f"accelerate launch{added} --num_machines=2 --machine_rank=1 --num_processes=8"
        f" --main_process_ip=tune-node-0-0.tune --main_process_port=29400 {arguments}"
    )


def test_deepspeed_gets_the_address_of_the_first_node_and_a_host_file(tmp_path: Path) -> None:
    assert joined(tmp_path, "deepspeed", "a.py", "--deepspeed", "zero.json").endswith(
        " --no_ssh --node_rank=1 --master_addr=tune-node-0-0.tune --master_port=29400"
        " a.py --deepspeed zero.json"
    )
    assert (tmp_path / "hosts").read_text() == "node-0 slots=4\nnode-1 slots=4\n"


def test_deepspeed_is_not_started_without_a_host_file(tmp_path: Path) -> None:
    tool(tmp_path, "mktemp", "exit 1")
    with pytest.raises(subprocess.CalledProcessError):
        joined(tmp_path, "deepspeed", "a.py")
    assert not [call for call in calls(tmp_path) if call.startswith("deepspeed")]


def test_other_commands_of_accelerate_are_not_changed(tmp_path: Path) -> None:
    assert joined(tmp_path, "accelerate", "env") == "accelerate env"
