"""The resource `ServingWebhooks`, on a fake API server: dry runs until the webhooks evaluate objects."""

import itertools
from collections.abc import Callable, Iterator
from datetime import datetime
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import yaml

from engine.provider import api_server, serving_webhooks
from engine.provider.resource import Cancelled
from engine.provider.serving_webhooks import ServingWebhooks
from infra.clients.kubernetes import ApiServer, NoAnswer
from infra.errors import TrainyardError
from tests.engine.progress import InterruptedProgress, RecordedProgress
from tests.servers import QuietHandler, kubeconfig_of, serving

COLLECTION = "/apis/kueue.x-k8s.io/v1beta2/resourceflavors"
MADE = {"kind": "ResourceFlavor", "metadata": {"name": "probe"}}
REJECTED = {**MADE, "spec": {"nodeLabels": {"no label": ""}}}
FINALIZER, WEBHOOK = "kueue.x-k8s.io/resource-in-use", "vresourceflavor.kb.io"
PROBES = [{"manifest": MADE, "evidence": FINALIZER}, {"manifest": REJECTED, "evidence": WEBHOOK}]
ADDED, DENIED = (201, FINALIZER), (403, f'admission webhook "{WEBHOOK}" denied the request')
UNTRUSTED = (
    500,
    # ErrCallingWebhook (k8s.io/apiserver/pkg/util/webhook) in NewInternalError; crypto/x509's text.
    f'Internal error occurred: failed calling webhook "{WEBHOOK}": failed to call webhook: Post'
    ' "https://kueue-webhook-service.kueue-system.svc:443/validate-resourceflavor?timeout=10s": tls: failed'
    " to verify certificate: x509: certificate signed by unknown authority (possibly because of"
    ' "crypto/rsa: verification error" while trying to verify candidate authority certificate "kueue-ca")',
)
CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"


class ScriptedApiServer(QuietHandler):
    """A fake API server with a list of answers, of which it repeats the last one."""

    answers: ClassVar[list[tuple[int, str]]]
    asked: ClassVar[list[tuple[str, Any]]]

    def do_POST(self) -> None:
        self.asked.append((self.path, self.body()))
        code, text = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.respond(code, {"message": text} if text else b"")


class StaleApiServer(ScriptedApiServer):
    """Refuses the certificate of WEBHOOK until its configuration changes, which has had its CA all along.

    The configuration is an object per path.
    """

    configurations: ClassVar[dict[str, dict[str, Any]]]
    writable: ClassVar[bool]
    patched: ClassVar[list[tuple[str, str, int]]]
    """Path and query of each change, and the number of dry runs before it."""

    def do_GET(self) -> None:
        found = [each for path, each in self.configurations.items() if path.startswith(f"{self.path}/")]
        self.respond(200, {"items": found})

    def do_PATCH(self) -> None:
        assert self.headers["Content-Type"] == "application/merge-patch+json"
        path, _, query = self.path.partition("?")
        self.patched.append((path, query, len(self.asked)))
        if not self.writable:
            self.respond(403, {"message": "mutatingwebhookconfigurations is forbidden"})
            return
        self.configurations[path]["metadata"].update(self.body()["metadata"])
        self.answers[:] = [ADDED, DENIED]
        self.respond(200, self.configurations[path])


class ProgressUntil(RecordedProgress):
    """A Progress with a Ctrl-C once a condition holds."""

    def __init__(self, condition: Callable[[], bool]) -> None:
        super().__init__()
        self._condition = condition

    def check(self) -> None:
        if self._condition():
            raise Cancelled


def configuration(name: str, webhook: str, ca: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "webhooks": [{"name": webhook, "clientConfig": {"caBundle": ca} if ca else {}}],
    }


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    yield from serving_by(ScriptedApiServer, monkeypatch)


@pytest.fixture
def stale(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    """Ten seconds pass between two answers by the clock of the configurations."""
    ticks = itertools.count(step=10)
    monkeypatch.setattr(serving_webhooks, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    monkeypatch.setattr(serving_webhooks, "STALE_SECONDS", 30)
    StaleApiServer.configurations = {
        f"{CONFIGURATIONS}/{kind}webhookconfigurations/{name}": configuration(name, webhook, ca)
        for kind, name, webhook, ca in (
            ("validating", "kueue", WEBHOOK, "Q0E="),
            ("validating", "jobset", "vjobset.kb.io", "Q0E="),
            ("mutating", "kueue-without-ca", WEBHOOK, ""),
        )
    }
    StaleApiServer.writable, StaleApiServer.patched = True, []
    yield from serving_by(StaleApiServer, monkeypatch)


def serving_by(
    kind: type[ScriptedApiServer], monkeypatch: pytest.MonkeyPatch
) -> Iterator[ThreadingHTTPServer]:
    monkeypatch.setattr(api_server, "POLL_SECONDS", 0.01)
    ScriptedApiServer.answers, ScriptedApiServer.asked = [], []
    with serving(kind) as listening:
        yield listening


def inputs(server: ThreadingHTTPServer) -> dict[str, Any]:
    kubeconfig = kubeconfig_of(f"http://127.0.0.1:{server.server_port}")
    return {"kubeconfig": yaml.safe_dump(kubeconfig), "collection": COLLECTION, "probes": PROBES}


def test_dry_runs_are_repeated_until_the_webhooks_evaluate_objects(server: ThreadingHTTPServer) -> None:
    ScriptedApiServer.answers += [
        (404, "no kind"),
        (500, "failed calling webhook"),
        (429, "busy"),
        ADDED,
        UNTRUSTED,
        DENIED,
    ]
    ServingWebhooks().create(inputs(server), RecordedProgress())
    path = f"{COLLECTION}?dryRun=All"
    assert ScriptedApiServer.asked == [(path, MADE)] * 4 + [(path, REJECTED)] * 2


@pytest.mark.parametrize("status", [404, 429, 502])
def test_an_answer_without_a_body_is_no_evidence(server: ThreadingHTTPServer, status: int) -> None:
    ScriptedApiServer.answers += [(status, ""), ADDED, DENIED]
    progress = RecordedProgress()
    ServingWebhooks().create(inputs(server), progress)
    assert len(ScriptedApiServer.asked) == 3
    assert HTTPStatus(status).phrase in progress.lines


def test_a_failed_request_is_no_evidence(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, failures = ApiServer.create, [NoAnswer("the connection broke off")]

    def failing_once(*arguments: Any) -> Any:
        if failures:
            raise failures.pop()
        return create(*arguments)

    monkeypatch.setattr(ApiServer, "create", failing_once)
    ScriptedApiServer.answers += [ADDED, DENIED]
    progress = RecordedProgress()
    ServingWebhooks().create(inputs(server), progress)
    assert len(ScriptedApiServer.asked) == 2
    assert "the connection broke off" in progress.lines


def test_dry_runs_are_repeated_while_the_api_server_lacks_the_webhooks(server: ThreadingHTTPServer) -> None:
    """It first admits what they would change or reject, and then calls them without their CA."""
    ScriptedApiServer.answers += [(201, "as sent"), UNTRUSTED, ADDED, (201, "as sent"), UNTRUSTED, DENIED]
    progress = RecordedProgress()
    ServingWebhooks().create(inputs(server), progress)
    assert len(ScriptedApiServer.asked) == 6
    assert f"the API server admits ResourceFlavor without {FINALIZER}" in progress.lines
    assert f"the API server admits ResourceFlavor without {WEBHOOK}" in progress.lines


def test_a_configuration_whose_ca_is_not_read_is_annotated(stale: ThreadingHTTPServer) -> None:
    """Only the configuration that the answer names, once, and not before STALE_SECONDS have passed."""
    ScriptedApiServer.answers += [ADDED, UNTRUSTED]
    progress = RecordedProgress()
    ServingWebhooks().create(inputs(stale), progress)
    ((path, query, num_asked),) = StaleApiServer.patched
    assert path == f"{CONFIGURATIONS}/validatingwebhookconfigurations/kueue"
    assert query == "fieldManager=trainyard"
    assert num_asked == 1 + 4, "the refusals after 0, 10, 20 and 30 s"
    metadata = StaleApiServer.configurations[path]["metadata"]
    assert datetime.fromisoformat(metadata["annotations"]["trainyard.dev/reread"]).tzinfo is not None
    assert (
        "validatingwebhookconfigurations/kueue: annotated, so that the API server reads its CA again"
        in progress.lines
    )


def test_a_configuration_that_cannot_be_annotated_is_tried_at_intervals(stale: ThreadingHTTPServer) -> None:
    StaleApiServer.writable = False
    ScriptedApiServer.answers += [ADDED, UNTRUSTED]
    progress = ProgressUntil(lambda: len(StaleApiServer.patched) == 3)
    with pytest.raises(Cancelled):
        ServingWebhooks().create(inputs(stale), progress)
    assert [num_asked for _, _, num_asked in StaleApiServer.patched] == [5, 8, 11]
    assert [line for line in progress.lines if "kueue: not annotated: " in line and "forbidden" in line]


def test_other_answers_leave_the_configurations_as_they_are(stale: ThreadingHTTPServer) -> None:
    """Also one refused certificate among them: a restarted controller gives a new CA a moment later."""
    ScriptedApiServer.answers += [UNTRUSTED, (500, f'failed calling webhook "{WEBHOOK}": no endpoints')]
    with pytest.raises(Cancelled):
        ServingWebhooks().create(inputs(stale), ProgressUntil(lambda: len(StaleApiServer.asked) == 12))
    assert StaleApiServer.patched == []


def test_an_object_that_another_webhook_rejects_is_an_error_at_once(server: ThreadingHTTPServer) -> None:
    ScriptedApiServer.answers += [(422, "spec.nodeLabels is wrong")]
    with pytest.raises(TrainyardError, match=r"spec\.nodeLabels is wrong"):
        ServingWebhooks().create(inputs(server), RecordedProgress())
    assert len(ScriptedApiServer.asked) == 1


def test_webhooks_that_never_answer_are_an_error_with_the_last_message(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving_webhooks, "SERVING_SECONDS", 0.05)
    ScriptedApiServer.answers += [(500, "no endpoints available")]
    with pytest.raises(TrainyardError, match=r"resourceflavors is not served .*no endpoints available"):
        ServingWebhooks().create(inputs(server), RecordedProgress())


def test_an_interrupt_ends_the_wait_for_webhooks(server: ThreadingHTTPServer) -> None:
    ScriptedApiServer.answers += [(500, "no endpoints available")]
    with pytest.raises(Cancelled):
        ServingWebhooks().create(inputs(server), InterruptedProgress())


def test_every_input_that_is_missing_or_unknown_is_named() -> None:
    failures = ServingWebhooks().check({"kubeconfig": "text", "probes": {}, "more": 1})
    assert {failure.property for failure in failures} == {"collection", "probes", "more"}
