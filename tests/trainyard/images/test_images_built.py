"""Real images, built by buildah, checked by `trainyard stack images`: a library that a layer removes is
missing.
"""

import io
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.progress import PlainProgress
from tests.tables import table
from trainyard.images.images import Inventory, unfit_archive

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(600)]
LIBRARIES = "usr/lib/x86_64-linux-gnu"
FILES, LINKS = table(__file__).values()
STACK = Inventory((), (), fabrics={"the training image": ("ib-ndr", "ib-shared", "efav3")})


@pytest.fixture
def buildah(tmp_path: Path) -> Callable[..., str]:
    if shutil.which("buildah") is None:
        pytest.fail("buildah is not here: make nfs, or apt-get install --no-install-recommends buildah")
    store = ["--root", str(tmp_path / "store"), "--runroot", str(tmp_path / "run"), "--storage-driver", "vfs"]

    def run(*arguments: str) -> str:
        done = subprocess.run(["buildah", *store, *arguments], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"buildah {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    return run


def lacks(buildah: Callable[..., str], image: str, file: Path) -> list[str]:
    buildah("push", image, f"oci-archive:{file}")
    problems = unfit_archive(STACK, file, PlainProgress(io.StringIO()))
    assert all(problem.fix.startswith("install ") for problem in problems)
    return sorted(problem.got for problem in problems)


def test_an_image_without_the_libraries_of_its_fabric_is_refused_by_their_names(
    buildah: Callable[..., str], tmp_path: Path
) -> None:
    content = tmp_path / "context/content"
    for path in (*FILES, *LINKS):
        (content / path).parent.mkdir(parents=True, exist_ok=True)
    for path in FILES:
        (content / path).touch()
    for path, target in LINKS.items():
        (content / path).symlink_to(target)
    (content.parent / "Dockerfile").write_text("FROM scratch\nCOPY content /\n")
    buildah("build", "--isolation", "chroot", "--tag", "localhost/verbs", str(content.parent))
    assert lacks(buildah, "localhost/verbs", tmp_path / "verbs.tar") == []

    container = buildah("from", "localhost/verbs")
    root = Path(buildah("mount", container))
    (root / LIBRARIES / "libibverbs.so.1").unlink()
    (root / LIBRARIES / "libfabric.so.1.27.0").unlink()
    (root / LIBRARIES / "libnccl-net-ofi.so").unlink()
    shutil.rmtree(root / LIBRARIES / "libibverbs")
    buildah("commit", container, "localhost/bare")
    assert lacks(buildah, "localhost/bare", tmp_path / "bare.tar") == [
        "no libfabric.so.1",
        "no libibverbs.so.1",
        "no libibverbs/libefa-rdmav*.so",
        "no libibverbs/libmlx5-rdmav*.so",
        "no libnccl-net-ofi.so",
    ]
    buildah("rm", "--all")
