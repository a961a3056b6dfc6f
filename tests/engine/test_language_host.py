"""The language host's gRPC service: programs, plugins, policy packs, their environments, and their end."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pip
import psutil
import pytest
from google.protobuf.empty_pb2 import Empty

from engine.language_host.children import Children
from engine.language_host.environment import ProgramEnvironment, ProgramEnvironmentError
from engine.language_host.server import EXEC_VARIABLE, LanguageHost, Options, parse
from engine.stubs import language_pb2, language_pb2_grpc
from tests.engine.wheels import write_wheel
from tests.processes import TIMEOUT_SECONDS, wait_for

VENV = Path(sys.prefix)
Host = language_pb2_grpc.LanguageRuntimeStub


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    server = grpc.server(ThreadPoolExecutor(8))
    children = Children()
    service = LanguageHost(Options(engine="127.0.0.1:1", tracing=""), children)
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Host(channel)
    children.stop()
    server.stop(0)


def program(folder: Path, environment: Path | None = VENV) -> language_pb2.ProgramInfo:
    of = str(folder)
    info = language_pb2.ProgramInfo(root_directory=of, program_directory=of, entry_point=".")
    info.options.update({"virtualenv": str(environment)} if environment else {})
    return info


def run_request(folder: Path, **more: Any) -> language_pb2.RunRequest:
    return language_pb2.RunRequest(
        info=program(folder), pwd=str(folder), project="tiny", stack="dev", parallel=4, **more
    )


def ran(host: Host, info: language_pb2.ProgramInfo, kind: str, *variables: str) -> tuple[bytes, bytes, int]:
    """Run a plugin to its end; return its output, its errors and its exit code."""
    request = language_pb2.RunPluginRequest(
        info=info, pwd=info.root_directory, kind=kind, args=["engine:1"], env=["PATH=/usr/bin", *variables]
    )
    answers = list(host.RunPlugin(request))
    stdout, stderr = (b"".join(getattr(each, name) for each in answers) for name in ("stdout", "stderr"))
    return stdout, stderr, answers[-1].exitcode


def exec_script(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> Path:
    script = folder / "exec.py"
    script.write_text(code)
    monkeypatch.setenv(EXEC_VARIABLE, str(script))
    return script


@pytest.mark.parametrize(
    ("code", "error", "bail"),
    [(0, "", False), (32, "", True), (3, "Program exited with non-zero exit code: 3", False)],
)
def test_the_end_of_a_program_is_reported_as_the_engine_expects(
    host: Host,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    error: str,
    bail: bool,
) -> None:
    exec_script(tmp_path, monkeypatch, f"raise SystemExit({code})")
    answer = host.Run(run_request(tmp_path))
    assert (answer.error, answer.bail) == (error, bail)


def test_a_missing_virtual_environment_is_reported_with_the_command_that_makes_it(
    host: Host, tmp_path: Path
) -> None:
    request = run_request(tmp_path)
    request.info.options.update({"virtualenv": "nowhere"})
    answer = host.Run(request)
    assert str(tmp_path / "nowhere") in answer.error
    assert "pulumi install" in answer.error


@pytest.fixture
def host_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A writable Python with pip in place of the host's."""
    folder = tmp_path / "host_python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = next(folder.glob("lib/python3*/site-packages"))
    (site / "pip.pth").write_text(str(Path(pip.__file__).parent.parent))
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture
def plugin(tmp_path: Path) -> language_pb2.ProgramInfo:
    """A plugin that needs a package and names no virtual environment."""
    folder = tmp_path / "plugin"
    folder.mkdir()
    (folder / "requirements.txt").write_text(f"./{write_wheel(folder, 'needed').name}\n")
    (folder / "__main__.py").write_text("import needed; print(needed.WHERE)")
    return program(folder, environment=None)


def test_a_plugin_that_names_no_virtual_environment_has_a_separate_one(
    host: Host, host_python: Path, plugin: language_pb2.ProgramInfo
) -> None:
    folder = plugin.root_directory
    install = language_pb2.InstallDependenciesRequest(directory=folder, info=plugin, is_plugin=True)
    list(host.InstallDependencies(install))
    assert list(host_python.rglob("needed*")) == []
    installed = next(Path(folder).glob("venv/lib/python3*/site-packages/needed.py"))
    # A fake of the SDK, which starts a policy pack.
    (installed.parent / "pulumi").mkdir()
    (installed.parent / "pulumi" / "policy.py").write_text("import needed; print(needed.WHERE)")
    for kind in ("resource", "analyzer"):
        assert ran(host, plugin, kind)[0].decode().strip() == str(installed)


def test_a_plugin_that_is_not_installed_does_not_run_with_the_hosts_python(
    host: Host, host_python: Path, plugin: language_pb2.ProgramInfo
) -> None:
    with pytest.raises(grpc.RpcError, match=r"no virtual environment at .*/plugin/venv .*`pulumi install`"):
        ran(host, plugin, "resource")


def test_cancel_ends_a_running_program_without_an_error(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    exec_script(tmp_path, monkeypatch, f"import time; open({str(started)!r}, 'w'); time.sleep(600)")
    running = host.Run.future(run_request(tmp_path))
    wait_for(started.exists)
    host.Cancel(Empty())
    assert running.result(timeout=TIMEOUT_SECONDS).bail


def test_a_plugin_streams_its_output(host: Host, tmp_path: Path) -> None:
    (tmp_path / "__main__.py").write_text(
        "import os, sys; print('4711', sys.argv[1:], os.environ['COLOUR'], flush=True);"
        "print('trouble', file=sys.stderr); sys.exit(5)"
    )
    expected = (b"4711 ['engine:1'] red\n", b"trouble\n", 5)
    assert ran(host, program(tmp_path), "resource", "COLOUR=red") == expected


def test_a_policy_pack_starts_although_a_folder_has_the_name_of_a_standard_module(
    host: Host, tmp_path: Path
) -> None:
    (tmp_path / "platform").mkdir()
    (tmp_path / "platform" / "__init__.py").touch()
    (tmp_path / "__main__.py").write_text("print('pack runs')")
    out, _, code = ran(host, program(tmp_path), "analyzer")
    assert (out, code) == (b"pack runs\n", 0)


def test_the_engine_gets_the_plugins_that_the_environment_needs_ours_included(
    host: Host, tmp_path: Path
) -> None:
    answer = host.GetRequiredPackages(language_pb2.GetRequiredPackagesRequest(info=program(tmp_path)))
    found = {package.name: (package.kind, package.version) for package in answer.packages}
    assert found["kubernetes"] == ("resource", "4.25.0")
    assert found["trainyard"] == ("resource", "0.1.0")


def test_direct_dependencies_are_those_that_no_other_package_requires(host: Host, tmp_path: Path) -> None:
    def names(transitive: bool) -> set[str]:
        request = language_pb2.GetProgramDependenciesRequest(
            info=program(tmp_path), transitiveDependencies=transitive
        )
        return {each.name for each in host.GetProgramDependencies(request).dependencies}

    assert {"trainyard", "pulumi", "protobuf"} <= names(True)
    assert "protobuf" not in names(False)


def test_without_the_option_the_hosts_python_runs_the_program(tmp_path: Path) -> None:
    environment = ProgramEnvironment(tmp_path, {})
    assert environment.python.name == "python3"
    assert "VIRTUAL_ENV" not in environment.variables({})


def test_a_relative_virtual_environment_is_relative_to_the_project_not_to_the_caller(tmp_path: Path) -> None:
    with pytest.raises(ProgramEnvironmentError, match=str(tmp_path / ".venv")):
        _ = ProgramEnvironment(tmp_path, {"toolchain": "uv"}).python


@pytest.mark.parametrize(
    "arguments",
    [
        ["127.0.0.1:9"],
        ["-root=/project", "-virtualenv", ".venv", "127.0.0.1:9"],
        ["--virtualenv=.venv", "127.0.0.1:9"],
    ],
)
def test_the_engines_address_is_the_last_argument_whatever_flags_come_before(arguments: list[str]) -> None:
    assert parse(arguments).engine == "127.0.0.1:9"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_host_ends_quietly_on_a_signal(number: signal.Signals) -> None:
    command = [sys.executable, "-m", "engine.language_host", "127.0.0.1:1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline().strip().isdigit()
    process.send_signal(number)
    _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert (process.returncode, errors) == (0, "")


@pytest.mark.parametrize("path", [os.environ["PATH"], ""], ids=["setpriv", "no setpriv"])
def test_a_program_dies_with_a_host_that_is_killed(path: str, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = tmp_path / "exec.py"
    script.write_text(f"import os, time; open({str(pids)!r}, 'w').write(str(os.getpid())); time.sleep(600)")
    host = subprocess.Popen(
        [sys.executable, "-m", "engine.language_host", "127.0.0.1:1"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {EXEC_VARIABLE: str(script), "PATH": path},
    )
    assert host.stdout is not None
    with grpc.insecure_channel(f"127.0.0.1:{int(host.stdout.readline())}") as channel:
        running = Host(channel).Run.future(run_request(tmp_path))
        wait_for(lambda: pids.exists() and pids.read_text() != "")
        program_process = psutil.Process(int(pids.read_text()))
        host.kill()
        host.wait()
        program_process.wait(timeout=TIMEOUT_SECONDS)
        wait_for(running.done)
    assert not program_process.is_running()
