"""A credential that expires while a member works: the job goes on, and the command can be taken up again.

The credential is a token of Kubernetes' own, from an exec plugin, as clouds hand them out. The API server
refuses a token whose Secret was deleted.
"""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
import yaml

from tests.e2e.manifests import NAMESPACE
from tests.e2e.stack import LocalStack

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PEOPLE, NAME = "people", "ida"
EXPIRED = "401: your credential has expired"
PLUGIN = """#!/bin/sh
cd "$(dirname "$0")"
echo >>asked
token=gone
[ "$(wc -l <asked)" -gt "$(cat lasts)" ] || token=good
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{'
printf '"token":"%s","expirationTimestamp":"2020-01-01T00:00:00Z"}}' "$(cat $token)"
"""
"""A token that is to be asked for before each call; from some call on it is one that was taken back."""
ALWAYS = 10**6


@dataclass(frozen=True)
class TokenMember:
    """A member of a team who is known by a token, and works in a folder of code."""

    folder: Path

    def is_known_for(self, calls: int) -> None:
        """Let the credential be good for the next calls, and no longer."""
        (self.folder / "asked").write_text("")
        (self.folder / "lasts").write_text(f"{calls}\n")

    @property
    def calls(self) -> int:
        """How often a token was asked for."""
        return len((self.folder / "asked").read_text())

    def start(self, *words: str, errors: IO[bytes] | int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        """Start `trainyard …` in the folder of code."""
        program = str(Path(sys.prefix) / "bin" / "trainyard")
        index = words.index("--") if "--" in words else len(words)
        place = ("--context", "trial", "--stack", "unwritten")
        environment = {**os.environ, "KUBECONFIG": str(self.folder / "kubeconfig")}
        return subprocess.Popen(
            [program, *words[:index], *place, *words[index:]],
            cwd=self.folder / "code",
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
        )

    def run(self, *words: str) -> tuple[int, str]:
        """Run `trainyard …` to its end; return its exit code, and what it says of errors."""
        with self.start(*words) as started:
            _, errors = started.communicate(timeout=120)
        return started.returncode, errors.decode()


@pytest.fixture(scope="module")
def member(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenMember]:
    folder = tmp_path_factory.mktemp("ida")
    (folder / "code").mkdir()
    (folder / "code" / "wait.py").write_text("import time\nprint('waits', flush=True)\ntime.sleep(600)\n")
    plugin = folder / "plugin"
    plugin.write_text(PLUGIN)
    plugin.chmod(0o755)
    stack.kubectl("create", "namespace", PEOPLE)
    stack.kubectl("create", "serviceaccount", NAME, "-n", PEOPLE)
    let_in(stack)
    for token in ("good", "gone"):
        stack.kubectl("create", "secret", "generic", token, "-n", PEOPLE)
        bound = ("--bound-object-kind=Secret", f"--bound-object-name={token}")
        (folder / token).write_text(stack.kubectl("create", "token", NAME, "-n", PEOPLE, *bound))
    stack.kubectl("delete", "secret", "gone", "-n", PEOPLE)
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig_of(stack, plugin)))
    yield TokenMember(folder)
    stack.kubectl("delete", "namespace", PEOPLE, "--wait=false")


def let_in(stack: LocalStack) -> None:
    """Give the account what members of the team have."""
    subject = [{"kind": "ServiceAccount", "name": NAME, "namespace": PEOPLE}]
    for kind in ("rolebindings", "clusterrolebindings"):
        for each in stack.get(kind, "-A")["items"]:
            if any(found.get("name") == "research" for found in each.get("subjects") or ()):
                about = {"name": f"{NAME}-{each['metadata']['name']}"}
                if "namespace" in each["metadata"]:
                    about["namespace"] = each["metadata"]["namespace"]
                kept = {key: each[key] for key in ("apiVersion", "kind", "roleRef")}
                stack.apply({**kept, "metadata": about, "subjects": subject})


def kubeconfig_of(stack: LocalStack, plugin: Path) -> dict[str, object]:
    config = copy.deepcopy(yaml.safe_load(stack.kubeconfig.read_text()))
    api = "client.authentication.k8s.io/v1"
    signs_in = {"apiVersion": api, "command": str(plugin), "interactiveMode": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "trial", "cluster": config["clusters"][0]["cluster"]}],
        "users": [{"name": NAME, "user": {"exec": signs_in}}],
        "contexts": [
            {"name": "trial", "context": {"cluster": "trial", "user": NAME, "namespace": NAMESPACE}}
        ],
    }


def test_it_may_expire_before_each_call_until_the_job_is_submitted(
    stack: LocalStack, member: TokenMember
) -> None:
    words = ("run", "--gpus", "1", "--name", "expired", "--detach", "--", "python", "wait.py")
    for calls in range(100):
        member.is_known_for(calls)
        code, errors = member.run(*words)
        if code == 0:
            break
        assert code in {1, 2} and "401: " in errors and "sign in again" in errors, f"{calls}: {errors}"
        assert "expired" not in stack.names("trainjobs", "-n", NAMESPACE)
        assert calls == 0 or "no job was submitted: then run the same command again" in errors
    assert calls >= 5, "it was asked for before the upload, before the submission, and between"
    stack.kubectl("delete", "trainjob", "expired", "-n", NAMESPACE)


@contextmanager
def following(member: TokenMember, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Follow by a credential that is renewed for each call, until it is not."""
    errors = member.folder / "errors"
    member.is_known_for(ALWAYS)
    with errors.open("wb") as out, member.start(*words, errors=out) as started:
        assert started.stdout
        while started.stdout.readline() not in {b"waits\n", b"node 0 | waits\n"}:
            assert started.poll() is None, errors.read_text()
        try:
            yield started, errors
        finally:
            started.kill()


def test_it_may_expire_while_the_job_is_followed_which_is_taken_up_again(
    stack: LocalStack, member: TokenMember
) -> None:
    run = ("run", "--gpus", "1", "--name", "outlasts", "--", "python", "wait.py")
    take_up = ("logs", "-f", "outlasts")
    for words in (run, take_up):
        with following(member, *words) as (started, errors):
            before = member.calls
            stack.wait_until(lambda: member.calls > before + 2, "a credential that is renewed")  # noqa: B023
            assert started.poll() is None, errors.read_text()
            member.is_known_for(0)
            assert started.wait(60) == 1, errors.read_text()
            message = errors.read_text()
            assert EXPIRED in message and "sign in again" in message
            assert f"outlasts goes on; follow it again: trainyard {' '.join(take_up)}" in message
    [job] = [
        each
        for each in stack.get("pods", "-n", NAMESPACE)["items"]
        if re.match("outlasts-node-0-0-", each["metadata"]["name"])
    ]
    assert job["status"]["phase"] == "Running"
    stack.kubectl("delete", "trainjob", "outlasts", "-n", NAMESPACE)
