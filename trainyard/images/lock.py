"""`trainyard stack images --lock`: writes the digest of each image tag into the stack file.

The file is edited as text, so comments, order and spelling are unchanged; then it is read again, and the
values of all other keys are compared.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from engine.progress import for_stream
from infra.common.artifacts import Artifacts
from infra.errors import InputError, Problem, TrainyardError
from infra.stackfile import Stack
from infra.stackfile.images import ImagesSpec
from infra.stackfile.source import STACK_KEY, node_of, read
from trainyard.images.images import inventory
from trainyard.images.registry import Registries, Unavailable
from trainyard.stack.preview import prepared
from trainyard.stack.session import Session

_AT_ONCE = 4
"""Number of parallel requests; registries limit their rate."""
_COMMENT = "# by `trainyard stack images --lock`"


def lock_images(session: Session, registries: Registries | None = None) -> None:
    """Look up the digests of all images that the stack's nodes pull, and write them into its file.

    Raises:
        InputError: the stack pulls nothing.
        TrainyardError: an image cannot be found; the file is unchanged.
    """
    wanted = by_tag(session.stack, prepared(session))
    before = session.stack.images.digests
    digests = resolve(wanted, registries or Registries.from_docker_config())
    write(session.stack_file, digests)
    for image in sorted(digests.keys() | before.keys()):
        session.console.print(f"{_change(image, before, digests)} {image}", highlight=False, soft_wrap=True)
    session.console.print(f"{len(digests)} images are locked in {session.stack_file}", soft_wrap=True)


def _change(image: str, before: Mapping[str, str], after: Mapping[str, str]) -> str:
    if image not in after:
        return "gone     "
    if image not in before:
        return "new      "
    return "unchanged" if before[image] == after[image] else "moved    "


def by_tag(stack: Stack, artifacts: Artifacts) -> list[str]:
    """Return the images that the stack names by tag only. Raises InputError if nodes pull no images."""
    if any(image.startswith("trainyard.local/") for image in inventory(stack, artifacts).images):
        allowed = "a stack whose nodes pull images"
        fix = "nothing to lock: nodes import images that are built on this host, from pinned versions"
        raise InputError([Problem("target.cluster", "embedded", allowed, fix)])
    free = stack.model_copy(update={"images": ImagesSpec()})
    return [image for image in inventory(free, artifacts).images if "@" not in image]


def resolve(images: Sequence[str], registries: Registries) -> dict[str, str]:
    """Look up the digest of each image. Raises TrainyardError with all that cannot be found."""
    with for_stream().task("digests of images") as task, ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = []
        for image, answer in zip(images, pool.map(registries.digest, images), strict=True):
            answers.append((image, answer))
            task.advanced(len(answers), len(images), image)
    fix = "log in to the registry, or try again later; the stack file is unchanged"
    problems = [
        Problem(image, answer.answer, "the image", fix)
        for image, answer in answers
        if isinstance(answer, Unavailable)
    ]
    if problems:
        raise TrainyardError(problems)
    return {image: answer for image, answer in answers if isinstance(answer, str)}


def write(file: Path, digests: Mapping[str, str]) -> None:
    """Write digests into a stack file under `images.digests`, atomically, and change nothing else."""
    before, _ = read(file)
    text = with_digests(file.read_text(encoding="utf-8"), digests)
    staged = file.with_name(f".{file.name}.new")
    staged.write_text(text, encoding="utf-8")
    try:
        after, _ = read(staged)
        assert after == {**before, "images": {"digests": dict(digests)}}, "only this section is changed"
        staged.chmod(file.stat().st_mode & 0o777)
        staged.replace(file)
    finally:
        staged.unlink(missing_ok=True)


def with_digests(text: str, digests: Mapping[str, str]) -> str:
    """Return a stack file's text with its `images.digests` replaced by the given ones."""
    stack = node_of(text, ("config", STACK_KEY))
    assert isinstance(stack, yaml.MappingNode)
    found = next((pair for pair in stack.value if pair[0].value == "images"), None)
    if stack.flow_style:
        allowed = "a mapping of one line per key"
        raise InputError([Problem(STACK_KEY, "{…}", allowed, "write its keys on separate lines")])
    indent = " " * stack.value[0][0].start_mark.column
    lines = [f"{indent}    {image}: {digest}" for image, digest in sorted(digests.items())]
    block = "\n".join([f"{indent}images:", f"{indent}  digests:", *lines]) + "\n"
    if found:
        begin, end = _line_start(text, found[0].start_mark.index), _end(text, found[1])
        return text[:begin] + block + text[end:]
    end = _end(text, stack)
    before = text[:end] if text[:end].endswith("\n") else f"{text[:end]}\n"
    return f"{before}\n{indent}{_COMMENT}\n{block}{text[end:]}"


def _line_start(text: str, index: int) -> int:
    return text.rfind("\n", 0, index) + 1


def _end(text: str, node: yaml.Node) -> int:
    """Position of the line after a value: PyYAML ends a block where the next one starts, past comments."""
    if isinstance(node, yaml.CollectionNode) and node.value and not node.flow_style:
        last = node.value[-1]
        return _end(text, last[1] if isinstance(node, yaml.MappingNode) else last)
    index = int(node.end_mark.index)
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        return index
    newline = text.find("\n", index)
    return len(text) if newline < 0 else newline + 1
