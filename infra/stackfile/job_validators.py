"""Checks between the keys of a job: command or args, code, secrets, variables, ports, memory."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from infra.common import names
from infra.stackfile.dataset import DATA_PATH
from infra.stackfile.finding import Checks, Finding
from infra.stackfile.job import (
    EXIT_TIMEOUT,
    SRUN_PORT,
    InterruptionSpec,
    NeedsSpec,
    SecretSpec,
    settings_in,
    starts_by_rank,
)
from infra.stackfile.source import KeyPath

Words = tuple[str, ...] | None
_SECRET_NAME = re.compile(
    r"(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|API_?KEY|ACCESS_KEY|PRIVATE_KEY)$", re.IGNORECASE
)
SECRET_VALUE = re.compile(
    r"\b(hf_|ghp_|github_pat_|glpat-|sk-|xox[abp]-)[A-Za-z0-9_-]{16,}|\bA[KS]IA[A-Z0-9]{16}"
    r"|-----BEGIN [A-Z ]*PRIVATE"
)
"""Prefixes of tokens of Hugging Face, GitHub, GitLab, OpenAI, Slack and AWS, and of private keys."""
_RANKS = re.compile(r"(LOCAL_|GROUP_|NODE_|ROLE_)?RANK|(LOCAL_|ROLE_)?WORLD_SIZE|MASTER_(ADDR|PORT)")
_OURS = ("PET_", "TRAINYARD_", "TORCHELASTIC_", "OMPI_", "PRTE_", "PMIX_")
_TAKEN_PORTS = {
    2222: "the port of MPI jobs' sshd",
    29500: "the port of the ranks' rendezvous",
    29501: "the port of their process group",
    SRUN_PORT: "the port of srun in a batch script",
}
_PYTHON_FLAGS = frozenset({"-u"})
"""Python flags without effect here: output is unbuffered already."""


def a_job_has_a_command_or_arguments(command: Words, args: Words) -> Iterator[Finding]:
    """One of the two determines what the ranks run."""
    if (command is None) == (args is None):
        got = "neither" if args is None else "both"
        fix = "write one, such as command: [python, train.py]" if args is None else "remove one of them"
        yield ("command",), got, "a command, or args of the training package's program", fix


def a_command_has_no_interruptions(
    command: Words, interruptions: Sequence[InterruptionSpec]
) -> Iterator[Finding]:
    """Only the training package writes the steps at which they begin."""
    if command is not None and interruptions:
        fix = "remove them: their steps are the training package's"
        yield ("interruptions",), "interruptions beside a command", "only in jobs with args", fix


def args_are_of_the_training_package(
    command: Words, args: Words, code: str | None, datasets: Sequence[str], grace_seconds: int | None
) -> Iterator[Finding]:
    """Its program is in the image, reads one dataset, and has settings for what other keys say."""
    if args is None or command is not None:
        return
    if code is not None:
        yield ("code",), code, "only in jobs with a command", "remove it"
    if len(datasets) > 1:
        allowed = "one dataset, with args; a command takes several"
        yield ("datasets",), ", ".join(datasets), allowed, f"write `datasets: [{datasets[0]}]`"
    for index, key, value in settings_in(args):
        if key == DATA_PATH and datasets:
            yield ("args", index), f"{key}={value}", "nothing, with a dataset", "remove one of the two"
        if key == EXIT_TIMEOUT and grace_seconds:
            fix = "remove it: `grace` sets the timeout"
            yield ("args", index), f"{key}={value} beside grace", "one of the two", fix


def files_belong_to_a_folder(files: Sequence[str], code: str | None) -> Iterator[Finding]:
    """Named in the folder that is packed: inside of it, and where one is packed at all."""
    for index, each in enumerate(files):
        if each.startswith("/") or ".." in each.split("/"):
            allowed = "files of the folder, relative to it"
            yield ("files", index), repr(each), allowed, "copy them into the folder, or mount a dataset"
    if files and code is not None:
        fix = "remove one of them: `code` is a folder that is packed already"
        yield ("files",), "files beside code", "one of the two", fix


def packages_belong_to_a_command(
    command: Words, requirements: Sequence[str], packages: str | None
) -> Iterator[Finding]:
    """They are resolved when a job is submitted, or stored already; the training package needs none."""
    if requirements and packages:
        yield ("with",), "with beside packages", "one of the two", "remove one of them"
    if command is None and (requirements or packages):
        key = "with" if requirements else "packages"
        yield (key,), ", ".join(requirements) or f"{packages}", "only in jobs with a command", "remove it"


def python_starts_a_file_or_a_module(command: Words) -> Iterator[Finding]:
    """torchrun starts the file with the interpreter that runs torchrun, without options."""
    if not command or not starts_by_rank(command):
        return
    words = [*command[1:]]
    while words and words[0] in _PYTHON_FLAGS:
        words.pop(0)
    allowed = "python FILE …, or python -m MODULE …"
    if not words or words == ["-m"]:
        fix = "name the file that each rank runs"
        yield ("command",), " ".join(command), allowed, fix
    elif words[0].startswith("-") and words[0] != "-m":
        fix = "set PYTHON… variables instead, or begin with `torchrun --no-python`, `sh -c` or the like"
        yield ("command",), f"the option {words[0]} of {command[0]}", allowed, fix


def in_process_restarts_need_the_agent(
    command: Words, restarts: int | None, processes_per_node: int | None
) -> Iterator[Finding]:
    """A command that starts once per node restarts ranks itself."""
    if command and restarts is not None and processes_per_node is None and not starts_by_rank(command):
        allowed = "only for commands that begin with python, and args"
        yield ("restarts",), str(restarts), allowed, f"give it to {command[0]}, or set ranks_per_node"


def mpi_jobs_run_in_the_runtimes_image(
    image: str | None, runtime: str, needs: NeedsSpec | None
) -> Iterator[Finding]:
    """Trainer 2.3.0 applies a TrainJob's image to the launcher only, not to the workers."""
    mpi = runtime.startswith("mpi-") or (needs is not None and needs.framework == "mpi")
    if image is not None and mpi:
        fix = "remove it, or make it the stack's training image"
        yield ("image",), "an image beside mpi", "the runtime's image", fix


def variables_are_free_to_set(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Variables of the launcher and of the runtime identify the rank."""
    for name in environment:
        if _RANKS.fullmatch(name) or name.startswith(_OURS):
            allowed = "variables that neither the launcher nor the runtime sets"
            yield ("env", name), "a variable of the launcher", allowed, "remove it"
        elif name in names.DEVICE_VARIABLES:
            allowed = "a variable that the API server admits"
            yield ("env", name), name, allowed, "remove it: `gpus` sets the number"


def nothing_secret_is_written_out(
    environment: Mapping[str, str], command: Words, args: Words
) -> Iterator[Finding]:
    """All who may read the team's jobs can read their variables and arguments."""
    allowed = "values that every member of the team may read"
    for name, value in environment.items():
        if (_SECRET_NAME.search(name) and value) or SECRET_VALUE.search(value):
            fix = f"put it into a Secret, and name that: secrets: [{{secret: …, key: …, variable: {name}}}]"
            yield ("env", name), "a value that looks like a secret (not shown)", allowed, fix
    for key, words in (("command", command or ()), ("args", args or ())):
        for index, word in enumerate(words):
            if SECRET_VALUE.search(word):
                fix = "let the program read it from a variable, and set that by `secrets`"
                yield (key, index), "a value that looks like a secret (not shown)", allowed, fix


def a_secret_is_a_variable_or_a_file(secrets: Sequence[SecretSpec]) -> Iterator[Finding]:
    """Exactly one of `variable` and `file` is set."""
    for index, each in enumerate(secrets):
        if (each.variable is None) == (each.file is None):
            got = "neither" if each.variable is None else "both"
            yield ("secrets", index), got, "variable or file", "write one of the two"


def names_are_given_once(
    environment: Mapping[str, str],
    secrets: Sequence[SecretSpec],
    ports: Mapping[str, int],
    datasets: Sequence[str],
) -> Iterator[Finding]:
    """If two values had the same name, the second would be ignored."""
    variables = Counter([*environment, *(each.variable for each in secrets if each.variable)])
    files = Counter(each.file for each in secrets if each.file)
    for index, each in enumerate(secrets):
        for key, name, known in (("variable", each.variable, variables), ("file", each.file, files)):
            if name and known[name] > 1:
                yield ("secrets", index, key), repr(name), f"each {key} once", "rename or remove one of them"
    yield from _repeated(("datasets",), datasets)
    numbers = Counter(ports.values())
    for name, number in ports.items():
        if numbers[number] > 1:
            yield ("ports", name), str(number), "each port once", "remove one of the two names"


def _repeated(path: KeyPath, names: Sequence[str]) -> Iterator[Finding]:
    for index, name in enumerate(names):
        if name in names[:index]:
            yield (*path, index), repr(name), "each once", "remove one of the two"


def ports_are_free(ports: Mapping[str, int]) -> Iterator[Finding]:
    """The platform's own parts listen on some ports."""
    for name, number in ports.items():
        if number in _TAKEN_PORTS:
            yield (
                ("ports", name),
                str(number),
                f"a port other than {_TAKEN_PORTS[number]}",
                "choose another one",
            )
        elif number < 1024:
            allowed = "1024 or more: jobs are not root"
            yield ("ports", name), str(number), allowed, "let the program listen on a higher port"


def shared_memory_is_a_part_of_the_memory(
    memory_gib: int | None, shared_memory_gib: int | None
) -> Iterator[Finding]:
    """Data in /dev/shm count as memory of the pod."""
    if memory_gib and shared_memory_gib and shared_memory_gib > memory_gib:
        allowed = f"no more than `memory`, {memory_gib}Gi"
        yield ("shared_memory",), f"{shared_memory_gib}Gi", allowed, "lower it, or raise `memory`"


CHECKS = Checks(__name__)
