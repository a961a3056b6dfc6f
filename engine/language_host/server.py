# ruff: noqa: N802 -- methods are named by the protocol
"""gRPC server of Pulumi's LanguageRuntime service for Python: runs programs and plugins, installs their
dependencies, lists packages, and generates SDKs.
"""

import argparse
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.empty_pb2 import Empty

from engine.language_host.children import Children
from engine.language_host.environment import ProgramEnvironment, ProgramEnvironmentError, machine_python
from engine.plugin_server import PluginServer
from engine.stubs import language_pb2, language_pb2_grpc, plugin_pb2
from engine.tied import end

EXEC_VARIABLE = "TRAINYARD_PYTHON_EXEC"

CODEGEN = "pulumi-codegen"
"""Our command for the engine's own code generators (local/go/pulumi-codegen)."""
ALREADY_EXPLAINED = 32
"""Exit code of `pulumi-language-python-exec` after the script has shown the user's error itself."""


@dataclass(frozen=True)
class Options:
    """Command line options that the engine passes."""

    engine: str
    tracing: str


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """Runs Python programs and plugins for the engine; methods are named by the protocol."""

    def __init__(self, options: Options, children: Children) -> None:
        self._engine = options.engine
        self._tracing = options.tracing
        self._children = children

    def Handshake(
        self, request: language_pb2.LanguageHandshakeRequest, _context: grpc.ServicerContext
    ) -> language_pb2.LanguageHandshakeResponse:
        self._engine = request.engine_address or self._engine
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, _request: Empty, _context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version=version("pulumi"))

    def GetRequiredPackages(
        self, request: language_pb2.GetRequiredPackagesRequest, _context: grpc.ServicerContext
    ) -> language_pb2.GetRequiredPackagesResponse:
        packages = [
            plugin_pb2.PackageDependency(name=p.name, kind="resource", version=p.version, server=p.server)
            for p in _environment(request.info).plugins()
        ]
        return language_pb2.GetRequiredPackagesResponse(packages=packages)

    def Run(
        self, request: language_pb2.RunRequest, context: grpc.ServicerContext
    ) -> language_pb2.RunResponse:
        """Run the program against the engine's monitor, to its end."""
        environment = _environment(request.info)
        try:
            command = [str(environment.python), "-u", str(exec_script()), *self._exec_arguments(request)]
        except ProgramEnvironmentError as problem:
            return language_pb2.RunResponse(error=str(problem))
        variables = environment.variables(os.environ) | {
            "PULUMI_CONFIG": json.dumps(dict(request.config)),
            "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
        }
        code = self._children.run(command, Path(request.info.program_directory), variables)
        if code == ALREADY_EXPLAINED or self._children.stopped or not context.is_active():
            return language_pb2.RunResponse(bail=True)
        if code != 0:
            how = f"was killed by signal {-code}" if code < 0 else f"exited with non-zero exit code: {code}"
            return language_pb2.RunResponse(error=f"Program {how}")
        return language_pb2.RunResponse()

    def RunPlugin(
        self, request: language_pb2.RunPluginRequest, context: grpc.ServicerContext
    ) -> Iterator[language_pb2.RunPluginResponse]:
        """Run a plugin written in Python; its output is passed to the engine, which reads the port there."""
        environment = _environment(request.info, is_plugin=True)
        if request.kind == "analyzer" and not environment.exists:
            # Like the official host: a policy pack that names no virtual environment runs as a program does.
            environment = _environment(request.info)
        program = Path(request.info.program_directory, request.info.entry_point)
        variables = environment.variables(dict(entry.split("=", 1) for entry in request.env))
        with _reporting(context):
            python = str(environment.python)
        if request.kind == "analyzer":
            # -P: started in the program's folder, whose modules must not shadow the standard library's.
            command = [python, "-u", "-P", "-m", "pulumi.policy", *request.args, str(program)]
        else:
            command = [python, "-u", str(program), *request.args]
        process = self._children.start(command, Path(request.pwd), variables)
        context.add_callback(partial(end, process))
        for name, chunk in self._children.stream(process):
            if name == "stdout":
                yield language_pb2.RunPluginResponse(stdout=chunk)
            else:
                yield language_pb2.RunPluginResponse(stderr=chunk)
        yield language_pb2.RunPluginResponse(exitcode=process.wait())

    def InstallDependencies(
        self, request: language_pb2.InstallDependenciesRequest, context: grpc.ServicerContext
    ) -> Iterator[language_pb2.InstallDependenciesResponse]:
        """Make the virtual environment where it is missing and install `requirements.txt` into it."""
        environment = _environment(request.info, is_plugin=request.is_plugin)
        with _reporting(context):
            for command in _install_commands(environment, Path(request.directory)):
                process = self._children.start(command, Path(request.directory), dict(os.environ))
                context.add_callback(partial(end, process))
                for name, chunk in self._children.stream(process):
                    yield language_pb2.InstallDependenciesResponse(**{name: chunk})
                _check_exit(command, process.wait(), context)

    def GeneratePackage(
        self, request: language_pb2.GeneratePackageRequest, context: grpc.ServicerContext
    ) -> language_pb2.GeneratePackageResponse:
        """Write the SDK of a package from its schema (`pulumi package add`)."""
        program = shutil.which(CODEGEN)
        if program is None:
            got = f"no {CODEGEN} on PATH: run `trainyard local prepare --package`"
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, got)
        command = [program, "python", request.loader_target, request.directory]
        written = subprocess.run(
            command, input=request.schema, capture_output=True, text=True, check=False, start_new_session=True
        )
        if written.returncode:
            context.abort(grpc.StatusCode.UNKNOWN, written.stderr.strip())
        for name, content in request.extra_files.items():
            Path(request.directory, name).write_bytes(content)
        return language_pb2.GeneratePackageResponse()

    def Link(
        self, request: language_pb2.LinkRequest, context: grpc.ServicerContext
    ) -> language_pb2.LinkResponse:
        """Have a program use SDKs that were written for it: lines of its requirements, installed at once."""
        environment, root = _environment(request.info), Path(request.info.root_directory)
        requirements = root / "requirements.txt"
        there = requirements.read_text().splitlines() if requirements.exists() else []
        paths = [str(Path(os.path.relpath(root / each.path, root))) for each in request.packages]
        requirements.write_text("\n".join([*there, *(path for path in paths if path not in there)]) + "\n")
        with _reporting(context):
            for command in _install_commands(environment, root):
                code = self._children.run(command, root, environment.variables(os.environ))
                _check_exit(command, code, context)
        # A module is named after the publisher too: `team_trainyard` of `team/trainyard`.
        modules = [each.parent.name for path in paths for each in (root / path).glob("*/pulumi-plugin.json")]
        return language_pb2.LinkResponse(import_instructions=f"In Python: import {', '.join(modules)}")

    def About(
        self, request: language_pb2.AboutRequest, _context: grpc.ServicerContext
    ) -> language_pb2.AboutResponse:
        environment = _environment(request.info)
        pulumi = environment.version_of("pulumi")
        metadata = {"virtualenv": str(environment.virtualenv or ""), "pulumi": pulumi}
        home = environment.python.resolve()
        return language_pb2.AboutResponse(
            executable=str(environment.python), version=home.name.removeprefix("python"), metadata=metadata
        )

    def GetProgramDependencies(
        self, request: language_pb2.GetProgramDependenciesRequest, _context: grpc.ServicerContext
    ) -> language_pb2.GetProgramDependenciesResponse:
        packages = _environment(request.info).packages(transitive=request.transitiveDependencies)
        dependencies = [language_pb2.DependencyInfo(name=p.name, version=p.version) for p in packages]
        return language_pb2.GetProgramDependenciesResponse(dependencies=dependencies)

    def RuntimeOptionsPrompts(
        self, _request: language_pb2.RuntimeOptionsRequest, _context: grpc.ServicerContext
    ) -> language_pb2.RuntimeOptionsResponse:
        return language_pb2.RuntimeOptionsResponse()

    def Cancel(self, _request: Empty, _context: grpc.ServicerContext) -> Empty:
        self._children.stop()
        return Empty()

    def _exec_arguments(self, request: language_pb2.RunRequest) -> list[str]:
        named = {
            "monitor": request.monitor_address,
            "engine": self._engine,
            "project": request.project,
            "root_directory": request.info.root_directory,
            "stack": request.stack,
            "pwd": request.pwd,
            "dry_run": "true" if request.dryRun else "",
            "parallel": str(request.parallel),
            "tracing": self._tracing,
            "organization": request.organization,
        }
        flags = [part for name, value in named.items() if value for part in (f"--{name}", value)]
        program = Path(request.info.program_directory, request.info.entry_point)
        return [*flags, str(program), *request.args]


def exec_script() -> Path:
    """The engine's `pulumi-language-python-exec`. Raises ProgramEnvironmentError where there is none."""
    name = "pulumi-language-python-exec"
    script = Path(os.environ.get(EXEC_VARIABLE) or shutil.which(name) or name)
    if not script.is_file():
        raise ProgramEnvironmentError(f"{script} does not exist; `trainyard doctor` shows how to get it")
    return script


def _environment(info: language_pb2.ProgramInfo, *, is_plugin: bool = False) -> ProgramEnvironment:
    options: Mapping[str, Any] = json_format.MessageToDict(info.options)
    return ProgramEnvironment(Path(info.root_directory), options, is_plugin=is_plugin)


@contextmanager
def _reporting(context: grpc.ServicerContext) -> Iterator[None]:
    """End the call with the problem of an environment that cannot be used."""
    try:
        yield
    except ProgramEnvironmentError as problem:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(problem))


def _check_exit(command: list[str], code: int, context: grpc.ServicerContext) -> None:
    if code != 0:
        context.abort(grpc.StatusCode.ABORTED, f"`{' '.join(command)}` failed")


def _install_commands(environment: ProgramEnvironment, directory: Path) -> Iterator[list[str]]:
    if not environment.exists:
        yield [str(machine_python()), "-m", "venv", str(environment.virtualenv)]
    requirements = directory / "requirements.txt"
    if requirements.exists():
        yield [str(environment.python), "-m", "pip", "install", "-r", str(requirements)]


def parse(arguments: list[str] | None = None) -> Options:
    """Read the command line, whose last argument is the engine's address.

    Flags of older engines with runtime options are ignored: `Run` gets these options, too.
    """
    parser = argparse.ArgumentParser(
        "pulumi-language-python", description="Pulumi's language host for Python, which the engine starts"
    )
    parser.add_argument("engine", nargs="?", default="", help="the engine's gRPC address")
    parser.add_argument("--tracing", "-tracing", default="", help="where the program sends its traces")
    known, others = parser.parse_known_args(arguments)
    addresses = [other for other in others if not other.startswith("-")]
    return Options(engine=addresses[-1] if addresses else known.engine, tracing=known.tracing)


def main() -> None:
    """Serve the engine until it ends."""
    children = Children()
    plugin = PluginServer(on_stop=children.stop)
    host = LanguageHost(parse(), children)
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, plugin.server)
    plugin.run()
