"""Requests to registries: retries, redirects and logins; images are in test_images.py and test_lock.py."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from infra.errors import InputError
from tests.servers import QuietHandler, serving
from tests.tables import table
from trainyard.images.chart_index import Indexes
from trainyard.images.contents import UnreadableImageError, read_image
from trainyard.images.images import FetchedChart, Inventory, missing
from trainyard.images.registry import NoChartError, Registries, RegistryImage, Unavailable


class _RedirectingRegistry(QuietHandler):
    """A fake registry that redirects `/v2/N/…` and `/N/…` N times, to itself, before it answers."""

    def do_GET(self) -> None:
        before = "/v2/" if self.path.startswith("/v2/") else "/"
        number, _, after = self.path.removeprefix(before).partition("/")
        if int(number):
            self.respond(307, Location=f"{before}{int(number) - 1}/{after}")
        else:
            index = {"entries": {"driver": [{"version": "1", "digest": "aa"}]}}
            self.respond(200, index if self.command == "GET" else b"")

    do_HEAD = do_GET


class _LoginPage(QuietHandler):
    """A fake proxy that answers everything with its login page, and sends half of it as `cut`."""

    def do_GET(self) -> None:
        page, is_cut = b"<html>Sign in</html>", "cut" in self.path
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page[: 10 if is_cut else None])


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    with serving(handler) as server:
        yield f"127.0.0.1:{server.server_port}"


@pytest.fixture
def registry() -> Iterator[str]:
    with served(_RedirectingRegistry) as address:
        yield address


def test_redirects_are_followed_as_often_as_blobs_and_indexes_need(registry: str) -> None:
    """Registries redirect to a store, whose address may redirect again."""
    assert Registries().find_problem(f"{registry}/3/image:1") is None
    assert Indexes().digest(FetchedChart("driver", "1", f"http://{registry}/3")) == "aa"
    endless = Registries().find_problem(f"{registry}/4/image:1")
    assert endless == Unavailable(f"{registry} cannot be reached (MaxRetryError)")


def test_a_tls_error_is_not_retried_for_ever(registry: str) -> None:
    """The server has no TLS. urllib3 counts that neither as a failed connection nor as a failed read."""
    with pytest.raises(NoChartError, match="cannot be reached"):
        Indexes().digest(FetchedChart("driver", "1", f"https://{registry}/0"))


def test_a_registry_that_breaks_off_between_two_requests_is_a_problem_of_its_chart(
    registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NoChartError, match="cannot be reached"):
        Registries().chart_digest("127.0.0.1:1/charts/driver:1")
    monkeypatch.setattr(Registries, "find_problem", lambda *_: None)  # the first request succeeded
    (problem,) = missing(Inventory((), (FetchedChart("oci://127.0.0.1:1/charts/driver", "1"),)), Registries())
    assert "cannot be reached" in problem.got


def test_the_login_page_of_a_proxy_is_no_manifest() -> None:
    with served(_LoginPage) as host:
        problem = Registries().find_problem(f"{host}/image:1", ["amd64"])
        assert problem == Unavailable(f"{host} cannot be reached (DecodeError)")
        with pytest.raises(NoChartError, match="DecodeError"):
            Registries().chart_digest(f"{host}/charts/driver:1")
        with pytest.raises(UnreadableImageError, match=r"manifests/1 from 127\.0\.0\.1"):
            Registries().image(f"{host}/image:1").manifest("amd64")


def test_a_layer_whose_connection_breaks_is_no_wrong_layer() -> None:
    class Store(RegistryImage):
        def manifest(self, architecture: str) -> Mapping[str, Any]:
            return {"config": {"digest": "none"}, "layers": [{"digest": "cut"}]}

        def json(self, digest: str) -> Mapping[str, Any]:
            return {}

    with served(_LoginPage) as host, pytest.raises(UnreadableImageError, match="broke"):
        read_image(Store(Registries(), host, f"http://{host}/v2/image", "1"))


@pytest.mark.parametrize("text", ["{", "[]", '{"auths": {"ghcr.io": 7}}'])
def test_a_wrong_configuration_of_docker_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match="DOCKER_CONFIG"):
        Registries.from_docker_config({"DOCKER_CONFIG": str(tmp_path)})


def test_a_configuration_of_docker_without_logins_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"auths": null}')
    assert Registries.from_docker_config({"DOCKER_CONFIG": str(tmp_path)}).credentials == {}


@pytest.mark.parametrize(("key", "host"), table(__file__, "logins"))
def test_a_login_is_found_under_every_key_that_docker_writes(tmp_path: Path, key: str, host: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"auths": {key: {"auth": "bWU6cGFzcw=="}}}))
    found = Registries.from_docker_config({"DOCKER_CONFIG": str(tmp_path)})
    assert found.credentials[host] == "bWU6cGFzcw=="


def test_a_login_for_the_host_precedes_one_for_a_url(tmp_path: Path) -> None:
    logins = {"registry.example.com": {"auth": "bmV3"}, "https://registry.example.com/v1/": {"auth": "b2xk"}}
    (tmp_path / "config.json").write_text(json.dumps({"auths": logins}))
    found = Registries.from_docker_config({"DOCKER_CONFIG": str(tmp_path)})
    assert found.credentials["registry.example.com"] == "bmV3"
