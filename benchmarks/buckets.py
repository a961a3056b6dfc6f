"""Benchmark: wall and CPU time that the policies add to the preview of 2,000 S3 resources,
against packs without rules and no pack.

The resources are chosen because they cost the engine and the program little, so the policies' share is
largest. The time with a pack without rules is the lower bound for any pack.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import yaml

from benchmarks.figures import Figure
from benchmarks.policies import NONE, PACKS, WHOLE, Arm, figures, pack_of, take
from engine.paths import Paths
from infra.common.artifacts import ROOT
from rehearsal.fake_provider import FakeProvider
from trainyard.stack.session import Session

SIZE = 2000
PROGRAM = """
import os, pulumi
region = {"region": "eu-west-1"}
for index in range(int(os.environ["NUM_RESOURCES"]) // 4):
    name = f"data-{index}"
    tags = {"owner": "ml", "cost-center": "4711"}
    bucket = pulumi.CustomResource("aws:s3/bucket:Bucket", name, {"acl": "private", "tags": tags, **region})
    default = {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": "alias/data"}
    deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "*",
            "Condition": {"Bool": {"aws:SecureTransport": "false"}}}
    for kind, props in {
        "ServerSideEncryptionConfiguration": {"rules": [{"applyServerSideEncryptionByDefault": default}]},
        "PublicAccessBlock": {"blockPublicAcls": True, "blockPublicPolicy": True,
                              "ignorePublicAcls": True, "restrictPublicBuckets": True},
        "Policy": {"policy": {"Version": "2012-10-17", "Statement": [deny]}},
    }.items():
        props |= {"bucket": bucket.id, **region}
        pulumi.CustomResource(f"aws:s3/bucket{kind}:Bucket{kind}", name, props)
"""
"""The program: S3 buckets, each with the three resources that secure it."""
CONFIG = {"trainyard:residency": {"allowed": ["eu-*"]}}


def measure() -> list[Figure]:
    """Time previews with each pack, and with none."""
    with _project() as (preview, packs):
        arms = {name: Arm(partial(preview, "preview", *options)) for name, options in packs.items()}
        wall, cpu = take(arms)
    return figures("buckets with their locks", SIZE, wall, cpu)


@contextmanager
def _project() -> Iterator[tuple[Callable[..., float], Mapping[str, tuple[str, ...]]]]:
    """Create a project over a fake of AWS; yields what times one preview, and each arm's options."""
    with tempfile.TemporaryDirectory() as name, FakeProvider(["aws"]) as fake_provider:
        folder = Path(name)
        toolchain = Session("local", replace(Paths.from_environment(), state=folder / "state")).toolchain
        toolchain.ensure("binary/pulumi", "plugin/python-exec")
        runtime = {"name": "python", "options": {"virtualenv": str(ROOT / ".venv")}}
        (folder / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "buckets", "runtime": runtime}))
        (folder / "Pulumi.bench.yaml").write_text(yaml.safe_dump({"config": CONFIG}))
        (folder / "__main__.py").write_text(PROGRAM)
        (folder / "backend").mkdir()
        environment = {
            **os.environ,
            **fake_provider.environment(),
            "PATH": f"{toolchain.paths.bin}{os.pathsep}{os.environ['PATH']}",
            "PULUMI_HOME": str(folder / "home"),
            "PULUMI_BACKEND_URL": (folder / "backend").as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "bench",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        }

        def run(*command: str) -> float:
            started = time.monotonic()
            subprocess.run(
                ["pulumi", "--non-interactive", *command, "--stack", "bench"],
                cwd=folder,
                env={**environment, "NUM_RESOURCES": str(SIZE)},
                check=True,
                capture_output=True,
            )
            return time.monotonic() - started

        run("stack", "init")
        packs = {WHOLE: ROOT / "policies", **{name: pack_of(folder, name) for name in PACKS}}
        yield run, {**{name: ("--policy-pack", str(pack)) for name, pack in packs.items()}, NONE: ()}
