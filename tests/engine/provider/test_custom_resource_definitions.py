"""The resource `CustomResourceDefinitions`, on a fake API server: apply, wait, refuse, keep, delete."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from engine.provider import custom_resource_definitions
from engine.provider.custom_resource_definitions import CustomResourceDefinitions, digest, load_bundle
from engine.provider.resource import Cancelled, ResourceNotFound
from infra.common.names import OWNER_ANNOTATION
from infra.errors import InputError, TrainyardError
from tests.engine.progress import InterruptedProgress, RecordedProgress
from tests.problems import problems_of
from tests.servers import QuietHandler, kubeconfig_of, serving

PREFIX = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

OWNER = "trainyard/prod"
HELM = {"meta.helm.sh/release-name": "kueue", "meta.helm.sh/release-namespace": "queues"}


def definition(name: str, text: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": name.partition(".")[2],
            "names": {"plural": name.partition(".")[0]},
            "versions": [{"name": "v1beta1", "served": False}, {"name": "v1", "served": True}],
            "text": text,
        },
    }


class FakeApiServer(QuietHandler):
    """A fake API server for definitions, which are established at their second read."""

    stored: ClassVar[dict[str, Any]]
    objects: ClassVar[dict[str, list[Any]]]
    requests: ClassVar[list[tuple[str, str]]]
    establishes: ClassVar[bool]
    folder: ClassVar[Path]
    address: ClassVar[str]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        name = path.removeprefix(PREFIX).strip("/")
        if not path.startswith(PREFIX):
            self.respond(200, {"items": self.objects.get(path, [])})
        elif not name:
            self.respond(200, {"items": [{"metadata": each["metadata"]} for each in self.stored.values()]})
        elif name not in self.stored:
            self.respond(404, {"message": "not found"})
        else:
            if self.establishes:
                self.stored[name]["status"] = {"conditions": [{"type": "Established", "status": "True"}]}
            self.respond(200, self.stored[name])

    def do_PATCH(self) -> None:
        path, _, query = self.path.partition("?")
        name = path.removeprefix(PREFIX).strip("/")
        self.requests.append(("PATCH", name))
        assert self.headers["Content-Type"] == "application/apply-patch+yaml"
        assert {"fieldManager=trainyard", "force=true"} <= {
            part.lower().replace("fieldmanager", "fieldManager") for part in query.split("&")
        }
        applied = self.body()
        if "broken" in name:
            self.respond(422, {"message": "spec.group is wrong"})
            return
        self.stored[name] = applied
        self.respond(201, applied)

    def do_DELETE(self) -> None:
        name = self.path.partition("?")[0].removeprefix(PREFIX).strip("/")
        self.requests.append(("DELETE", name))
        found = self.stored.get(name) if "in-use" in name else self.stored.pop(name, None)
        self.respond(200 if found else 404, found or {"message": "not found"})


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path) -> None:
    FakeApiServer.stored, FakeApiServer.objects, FakeApiServer.requests = {}, {}, []
    FakeApiServer.establishes, FakeApiServer.folder = True, tmp_path
    FakeApiServer.address = "http://127.0.0.1:1"  # nothing listens


@pytest.fixture
def server() -> Iterator[type[FakeApiServer]]:
    with serving(FakeApiServer) as listening:
        FakeApiServer.address = f"http://127.0.0.1:{listening.server_port}"
        yield FakeApiServer


def inputs(*definitions: dict[str, Any]) -> dict[str, Any]:
    source = FakeApiServer.folder / f"{digest({'all': definitions})[:8]}.yaml"
    source.write_text(yaml.safe_dump_all(definitions))
    return {
        "kubeconfig": yaml.safe_dump(kubeconfig_of(FakeApiServer.address)),
        "owner": OWNER,
        "source": str(source),
        "definitions": {each["metadata"]["name"]: digest(each) for each in definitions},
    }


def created(*names: str, progress: RecordedProgress | None = None) -> dict[str, Any]:
    """Create definitions with these names; return the resource's inputs."""
    asked = inputs(*map(definition, names))
    CustomResourceDefinitions().create(asked, progress or RecordedProgress())
    return asked


def test_a_create_applies_every_definition_and_waits(server: Any) -> None:
    created("a.x", "b.x")
    assert sorted(server.requests) == [("PATCH", "a.x"), ("PATCH", "b.x")]
    assert all("status" in each for each in server.stored.values())


def test_a_second_create_changes_nothing(server: Any) -> None:
    asked = created("a.x")
    CustomResourceDefinitions().create(asked, RecordedProgress())
    assert server.requests == [("PATCH", "a.x")]


def test_an_update_applies_changed_definitions_and_removes_undeclared_ones(server: Any) -> None:
    old = created("a.x", "b.x", "c.x")
    server.requests.clear()
    new = inputs(definition("a.x"), definition("b.x", "new"))
    CustomResourceDefinitions().update(old, new, RecordedProgress())
    assert server.requests == [("PATCH", "b.x"), ("DELETE", "c.x")]


def test_a_definition_that_someone_removed_or_replaced_reads_as_different(server: Any) -> None:
    asked = created("a.x", "b.x", "c.x")
    del server.stored["a.x"]
    server.stored["b.x"] = definition("b.x", "someone else's")
    live = CustomResourceDefinitions().read(asked, {}, RecordedProgress())
    assert live.inputs["definitions"] == {"b.x": "", "c.x": asked["definitions"]["c.x"]}
    server.stored.clear()
    with pytest.raises(ResourceNotFound):
        CustomResourceDefinitions().read(asked, {}, RecordedProgress())


@pytest.mark.parametrize(
    ("annotations", "whose"),
    [
        (HELM, "Helm release kueue in queues"),
        ({OWNER_ANNOTATION: "trainyard/dev"}, "trainyard/dev"),
        ({}, "others"),
    ],
)
def test_definitions_of_others_are_refused_before_any_is_applied(
    server: Any, annotations: dict[str, str], whose: str
) -> None:
    theirs = definition("b.x", "theirs")
    theirs["metadata"]["annotations"] = annotations
    server.stored["b.x"] = theirs
    asked = inputs(definition("a.x"), definition("b.x"))
    with pytest.raises(TrainyardError, match="`existing`") as caught:
        CustomResourceDefinitions().create(asked, RecordedProgress())
    assert [each.path for each in caught.value.problems] == ["CustomResourceDefinition b.x"]
    assert caught.value.problems[0].got == f"exists, and is of {whose}"
    assert server.requests == []
    old = {**asked, "definitions": {"a.x": asked["definitions"]["a.x"]}}
    with pytest.raises(TrainyardError, match="`existing`"):
        CustomResourceDefinitions().update(old, asked, RecordedProgress())
    assert server.stored == {"b.x": theirs}


def test_a_version_in_which_objects_are_stored_is_never_dropped(server: Any) -> None:
    """`tests/infra/platform/admission/test_admission_served.py` has them stored anew by the real one."""
    old = definition("a.x", "old")
    old["metadata"]["annotations"] = {OWNER_ANNOTATION: OWNER}
    old["spec"]["versions"] = [{"name": "v1alpha1", "served": True, "storage": True}]
    server.establishes = False
    server.stored["a.x"] = {**old, "status": {"storedVersions": ["v1alpha1"]}}
    with pytest.raises(TrainyardError, match="stores objects as v1alpha1"):
        created("a.x")
    assert server.requests == []


def test_a_delete_removes_them(server: Any) -> None:
    asked = created("a.x")
    CustomResourceDefinitions().delete(asked, RecordedProgress())
    CustomResourceDefinitions().delete(asked, RecordedProgress())
    assert not server.stored


def test_a_definition_with_objects_is_kept(server: Any) -> None:
    asked = created("a.x", "b.x")
    server.objects["/apis/x/v1/b"] = [{"metadata": {"name": "theirs", "namespace": "team"}}]
    progress = RecordedProgress()
    CustomResourceDefinitions().update(asked, inputs(definition("a.x")), progress)
    CustomResourceDefinitions().delete(asked, progress)
    assert server.stored.keys() == {"b.x"}
    assert "b.x is kept: team/theirs is of its kind" in progress.lines


def test_a_refusal_is_reported_with_its_message(server: Any) -> None:
    with pytest.raises(TrainyardError, match=r"spec\.group is wrong"):
        created("broken.x")


def test_an_api_server_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(TrainyardError, match=r"127\.0\.0\.1"):
        created("a.x")


def test_a_definition_that_is_never_established_fails_with_its_name(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(custom_resource_definitions, "ESTABLISHED_SECONDS", 0.1)
    server.establishes = False
    with pytest.raises(TrainyardError, match=r"a\.x is not established"):
        created("a.x")


def test_a_definition_that_is_never_deleted_fails_with_its_name(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(custom_resource_definitions, "REMOVED_SECONDS", 0.1)
    asked = created("in-use.x")
    with pytest.raises(TrainyardError, match=r"in-use\.x is not deleted"):
        CustomResourceDefinitions().delete(asked, RecordedProgress())


def test_an_interrupt_ends_the_wait(server: Any) -> None:
    server.establishes = False
    with pytest.raises(Cancelled):
        created("a.x", progress=InterruptedProgress())


def test_a_bundle_that_differs_from_the_declaration_is_refused_with_every_difference(tmp_path: Path) -> None:
    asked = inputs(definition("a.x"), definition("b.x"))
    wrong = {**asked["definitions"], "a.x": "0" * 64, "c.x": "1" * 64}
    assert [(p.path, p.got) for p in problems_of(lambda: load_bundle(Path(asked["source"]), wrong))] == [
        ("definitions[a.x]", digest(definition("a.x"))),
        ("definitions[c.x]", "not in the bundle"),
    ]
    with pytest.raises(InputError, match="no file"):
        load_bundle(tmp_path / "gone.yaml", wrong)


def test_wrong_inputs_are_named() -> None:
    failures = CustomResourceDefinitions().check({"source": 3, "definitions": {}, "spare": 1})
    wrong = {"kubeconfig", "owner", "source", "definitions", "spare"}
    assert {failure.property for failure in failures} == wrong


def test_the_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
