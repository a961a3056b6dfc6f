"""`trainyard stack images`: the inventory of a stack's images and charts, checked against registries."""

import base64
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.progress import PlainProgress
from infra.common.artifacts import Artifacts
from infra.stackfile import load
from tests.infra.golden import CASES
from tests.infra.kubeconfigs import write_kubeconfig
from tests.servers import QuietHandler, serving
from tests.tables import table
from tests.trainyard.commands.alone import printed_alone
from tests.trainyard.images.layers import blobs, layer
from trainyard.images.images import FetchedChart, Inventory, inventory, missing, unfit
from trainyard.images.registry import Registries, Unavailable, parse_reference

LOGIN = base64.b64encode(b"me:password").decode()

STORED: dict[str, Any] = table(__file__, "stored")
VERBS = {
    "usr/lib/x86_64-linux-gnu/libibverbs.so.1": b"",
    "usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so": b"",
    "etc/libibverbs.d/mlx5.driver": b"",
}
IMAGES = {"bare": (layer(etc=b"folder:"),), "rdma": (layer(**VERBS), layer(etc=b"folder:"))}
for _name, _layers in IMAGES.items():
    _parts = blobs(*_layers)
    STORED[f"/v2/{_name}/manifests/1"] = _parts.pop("index")
    STORED |= {f"/v2/{_name}/blobs/{digest}": data for digest, data in _parts.items()}
    STORED |= {f"/v2/{_name}/manifests/{digest}": data for digest, data in _parts.items()}


class _ImageRegistry(QuietHandler):
    """A fake registry with `nvidia/driver:1` and STORED; `private/…` needs a token, which needs a login."""

    def do_HEAD(self) -> None:
        if "/private/" in self.path and self.headers.get("Authorization") != "Bearer granted":
            realm = f"http://{self.headers['Host']}/token"
            challenge = f'Bearer realm="{realm}",service="here",scope="pull"'
            self.respond(401, **{"WWW-Authenticate": challenge})
        else:
            exists = self.path in STORED or self.path.endswith("driver/manifests/1")
            self.respond(200 if exists else 404)

    def do_GET(self) -> None:
        if self.path in STORED:
            self.respond(200, STORED[self.path])
        else:
            known = self.headers.get("Authorization") == f"Basic {LOGIN}" and "scope=pull" in self.path
            self.respond(200 if known else 401, {"token": "granted"})


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with serving(_ImageRegistry) as server:
        yield f"127.0.0.1:{server.server_port}"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Inventory:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path_factory.mktemp("kube") / "config")))
        return inventory(load(CASES / "mixed" / "onprem.yaml"), Artifacts.from_environment())


@pytest.mark.engine
def test_the_command_needs_no_program_on_the_users_path(tmp_path: Path) -> None:
    shown = printed_alone(tmp_path, "stack images -s aws-dev -o json")
    assert any("kueue" in image for image in shown["images"])


def test_behind_an_air_gap_everything_is_in_the_mirror(found: Inventory) -> None:
    assert [image for image in found.images if not image.startswith("registry.example.com/")] == []
    hosts = {chart.name.partition("//")[2].partition("/")[0] for chart in found.charts}
    assert hosts == {"registry.example.com"}


def test_the_inventory_has_the_images_of_pods_charts_and_custom_resources(found: Inventory) -> None:
    kinds = "kueue/kueue training/rocm nvidia/driver:580 doca-driver k8s-device-plugin nfsplugin"
    for kind in kinds.split():
        assert any(kind in image for image in found.images), kind


def test_each_missing_image_and_chart_is_a_problem(registry: str) -> None:
    charts = tuple(FetchedChart(f"oci://{registry}/charts/{name}", "1") for name in ("driver", "other"))
    images = (f"{registry}/nvidia/driver:1", f"{registry}/nvidia/driver:2")
    problems = missing(Inventory(images, charts), Registries())
    assert [(each.path, each.got) for each in problems] == [
        (f"{registry}/nvidia/driver:2", "missing"),
        (f"{registry}/charts/other:1", "missing"),
    ]


def test_a_chart_with_another_digest_than_the_pinned_one_is_a_problem(registry: str) -> None:
    mirrored, vendor = f"oci://{registry}/charts/driver", f"http://{registry}/vendor"
    same = (
        FetchedChart(mirrored, "1", digest="aa"),
        FetchedChart("driver", "1", vendor, "aa"),
        FetchedChart("driver", "2", vendor),
    )
    assert missing(Inventory((), same), Registries()) == []
    other = (FetchedChart(mirrored, "1", digest="cc"), FetchedChart("driver", "2", vendor, "cc"))
    problems = missing(Inventory((), other), Registries())
    assert [(each.path, each.got) for each in problems] == [
        (f"{registry}/charts/driver:1", "sha256:aa"),
        (f"{vendor}: driver 2", "sha256:bb"),
    ]
    assert {each.allowed for each in problems} == {"sha256:cc: the pinned digest"}


def test_a_publisher_without_the_chart_is_a_problem(registry: str) -> None:
    repositories = {
        f"http://{registry}/vendor": "missing",
        f"http://{registry}/nothing": "missing",
        f"http://{registry}/nobody": "status 401",
        "http://127.0.0.1:1": "cannot be reached",
    }
    charts = tuple(FetchedChart("other", "1", repository) for repository in repositories)
    problems = missing(Inventory((), charts), Registries())
    assert len(problems) == len(repositories)
    for problem, (repository, got) in zip(problems, repositories.items(), strict=True):
        assert problem.path == f"{repository}: other 1"
        assert got in problem.got


def test_all_charts_but_two_are_pinned_by_digest(found: Inventory) -> None:
    published = Artifacts.from_environment().published
    without = {name for name, chart in published.items() if not chart.digest}
    assert without == {"network-operator", "dra-driver-nvidia-gpu"}
    pinned = {chart.name.rpartition("/")[2]: chart.digest for chart in found.charts}
    assert pinned == {name: published[name].digest for name in pinned}


def test_an_image_that_names_no_architecture_is_a_problem(registry: str) -> None:
    reference = f"{registry}/artifact:1"
    (problem,) = missing(Inventory((reference,), (), {reference: ("amd64",)}), Registries())
    assert problem.got == "names no architecture"


def test_an_image_must_be_for_the_architectures_of_its_nodes(registry: str) -> None:
    both, one = f"{registry}/both:1", f"{registry}/one:1"
    wanted = dict.fromkeys((both, one), ("amd64", "arm64"))
    (problem,) = missing(Inventory((both, one), (), wanted), Registries())
    assert (problem.path, problem.got) == (one, "for amd64 only")
    assert problem.allowed == "the image for amd64 and arm64"
    assert "linux/arm64" in problem.fix
    assert missing(Inventory((one,), (), {one: ("amd64",)}), Registries()) == []


def test_images_of_ranks_are_checked_for_the_libraries_of_their_fabrics(registry: str) -> None:
    bare, rdma, missing_image = (f"{registry}/{name}:1" for name in ("bare", "rdma", "missing"))
    fabrics = {bare: ("ib-ndr",), rdma: ("ib-ndr", "ib-shared"), missing_image: ("ib-ndr",)}
    wanted = Inventory((), (), {bare: ("amd64",), rdma: ("amd64",)}, fabrics)
    problems = unfit(wanted, Registries(), PlainProgress(io.StringIO()))
    lacking = [each for each in problems if each.path == f"{bare} (amd64)"]
    assert [each.got for each in lacking] == [
        "no libibverbs.so.1",
        "no libibverbs/libmlx5-rdmav*.so",
        "no /etc/libibverbs.d/mlx5.driver",
    ]
    assert "libibverbs1" in lacking[0].fix
    others = [(each.path, each.got) for each in problems if each not in lacking]
    assert others == [(missing_image, "login required")]


def test_the_inventory_has_the_fabrics_of_the_images_of_ranks(found: Inventory) -> None:
    fabrics = sorted(fabric for names in found.fabrics.values() for fabric in names)
    assert fabrics == ["ib-shared", "ib-shared-rocm"]
    assert set(found.fabrics) <= set(found.images)


def test_a_registry_that_needs_a_login_gets_dockers_configuration(registry: str, tmp_path: Path) -> None:
    config = {"auths": {registry: {"auth": LOGIN}}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    private = f"{registry}/private/driver:1"
    logged_in = Registries.from_docker_config({"DOCKER_CONFIG": str(tmp_path)})
    assert logged_in.find_problem(private) is None
    assert Registries().find_problem(private) == Unavailable("login required")
    assert LOGIN not in repr(logged_in)


@pytest.mark.parametrize(("reference", "parts"), table(__file__)["references"])
def test_a_reference_is_parsed_as_container_runtimes_do(reference: str, parts: list[str]) -> None:
    assert [*parse_reference(reference)] == parts
