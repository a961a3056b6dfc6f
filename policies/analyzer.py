# ruff: noqa: N802 - methods are named by the protocol
"""gRPC service of Pulumi's analyzer protocol: evaluates a run's resources by the policies, returns repairs,
and writes reports.

The policy SDK is not used, for three reasons. It downgrades a mandatory policy to advice where a value is
unknown. It gives a pack no stack configuration. It decodes each resource once per policy, which costs
milliseconds per resource at this number of policies. Here each resource is decoded once, and what cannot be
read is refused.
"""

import gc
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2, json_format
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc, plugin_pb2

import catalog
from policies import pack, presence, wire
from policies.config import EvaluatedStack, Organisation, check_patterns
from policies.evaluation import UNKNOWN_PARAMETER, Finding, PolicyEvaluator
from policies.exemptions import Exemption, PolicyConfigError, parse_exemptions
from policies.policy import EnforcementLevel, Policy, Provider, Resource, Severity
from policies.related_resources import RelatedResource, RelatedResources
from policies.reports import PolicyReport, write
from policies.unknowns import PropertyBlock

REPORTS_VARIABLE = "TRAINYARD_POLICY_REPORTS"

ALL = "all"
"""Key of the organisation file for every policy."""
EXEMPTIONS = "exemptions"
CARRIERS = "kubernetes-hidden-objects"
"""Name of the policy whose parameters contain the organisation's exemptions."""
KNOWN_PACKAGES = frozenset(catalog.clouds()) | {
    *("aws-native", "azure-native", "command", "kubernetes", "pulumi", "pulumi-python"),
    *("random", "time", "tls", "trainyard"),
}
"""Packages whose types policies read, or whose resources hold nothing."""

LEVELS = {level: getattr(analyzer_pb2, level.name) for level in EnforcementLevel}
SEVERITIES = {severity: getattr(analyzer_pb2, f"POLICY_SEVERITY_{severity.name}") for severity in Severity}


class Analyzer(analyzer_pb2_grpc.AnalyzerServicer):
    """Evaluates each resource before the engine creates it: the methods of the service
    `pulumirpc.Analyzer`.
    """

    def __init__(self, policies: Sequence[Policy]) -> None:
        self.policies = policies
        self.findings: list[Finding] = []
        self.num_resources = 0
        self.packages: set[str] = set()
        self.retained: dict[str, Resource] = {}
        """URN → resource, for policies over several resources; without those that a program only reads."""
        self.evaluator = PolicyEvaluator(policies)
        self.stack = EvaluatedStack(environment=dict(os.environ))

    def Handshake(
        self, _request: analyzer_pb2.AnalyzerHandshakeRequest, _context: grpc.ServicerContext
    ) -> analyzer_pb2.AnalyzerHandshakeResponse:
        return analyzer_pb2.AnalyzerHandshakeResponse()

    def GetPluginInfo(
        self, _request: empty_pb2.Empty, _context: grpc.ServicerContext
    ) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version=pack.VERSION)

    def GetAnalyzerInfo(
        self, _request: empty_pb2.Empty, _context: grpc.ServicerContext
    ) -> analyzer_pb2.AnalyzerInfo:
        return analyzer_pb2.AnalyzerInfo(
            name=pack.NAME,
            version=pack.VERSION,
            supportsConfig=True,
            policies=[_policy_info(policy) for policy in self.policies],
        )

    def ConfigureStack(
        self, request: analyzer_pb2.AnalyzerStackConfigureRequest, context: grpc.ServicerContext
    ) -> analyzer_pb2.AnalyzerStackConfigureResponse:
        presence.announce(request.project, request.stack, self.stack.environment)
        with _refusing(context):
            self.stack = replace(
                self.stack,
                project=request.project,
                name=request.stack,
                dry_run=request.dry_run,
                config=dict(request.config),
            )
        return analyzer_pb2.AnalyzerStackConfigureResponse()

    def Configure(
        self, request: analyzer_pb2.ConfigureAnalyzerRequest, context: grpc.ServicerContext
    ) -> empty_pb2.Empty:
        levels = {value: level for level, value in LEVELS.items()}
        # The engine has applied the level of `all` to every policy.
        configured = {name: c for name, c in request.policyConfig.items() if name != ALL}
        with _refusing(context):
            parameters = {name: wire.decode(c.properties) for name, c in configured.items()}
            self.evaluator = PolicyEvaluator(
                self.policies,
                {name: levels[c.enforcementLevel] for name, c in configured.items()},
                parameters,
            )
            self.stack = replace(self.stack, organisation=_organisation(parameters))
            _check(self.stack, self.policies)
        return empty_pb2.Empty()

    def Analyze(
        self, request: analyzer_pb2.AnalyzeRequest, _context: grpc.ServicerContext
    ) -> analyzer_pb2.AnalyzeResponse:
        resource = self._resource(request)
        findings = list(self.evaluator.evaluate(resource))
        self.findings += findings
        self.num_resources += 1
        self.packages.add(resource.type.partition(":")[0])
        if self.evaluator.is_related(resource.type):
            self.retained[resource.urn] = resource
        return analyzer_pb2.AnalyzeResponse(diagnostics=[_diagnostic(finding) for finding in findings])

    def Remediate(
        self, request: analyzer_pb2.AnalyzeRequest, _context: grpc.ServicerContext
    ) -> analyzer_pb2.RemediateResponse:
        if not self.evaluator.repairing:
            return analyzer_pb2.RemediateResponse()
        properties = request.properties
        repairs = []
        for policy, patch in self.evaluator.repairs(self._resource(request)):
            properties = wire.patched(properties, patch)
            repairs.append(
                analyzer_pb2.Remediation(
                    policyName=policy.name,
                    policyPackName=pack.NAME,
                    policyPackVersion=pack.VERSION,
                    description=policy.title,
                    properties=properties,
                )
            )
        return analyzer_pb2.RemediateResponse(remediations=repairs)

    def AnalyzeStack(
        self, request: analyzer_pb2.AnalyzeStackRequest, _context: grpc.ServicerContext
    ) -> analyzer_pb2.AnalyzeResponse:
        related_resources = RelatedResources(
            _related(self.retained[declared.urn], declared)
            for declared in request.resources
            if declared.urn in self.retained
        )
        findings = list(self.evaluator.evaluate_stack(related_resources))
        self.findings += findings
        self.write_reports()
        diagnostics = [*map(_diagnostic, findings), *map(_unused, self._unused())]
        if unknown := sorted(self.packages - KNOWN_PACKAGES):
            message = f"No policy of a cloud knows the packages {', '.join(unknown)}: review their resources."
            diagnostics.append(_advice(CARRIERS, "Packages are known", message))
        return analyzer_pb2.AnalyzeResponse(diagnostics=diagnostics)

    def Cancel(self, _request: empty_pb2.Empty, _context: grpc.ServicerContext) -> empty_pb2.Empty:
        return empty_pb2.Empty()

    def report(self) -> PolicyReport:
        """Return the report of the findings so far."""
        return PolicyReport(
            project=self.stack.project,
            stack=self.stack.name,
            num_resources=self.num_resources,
            policies=self.policies,
            findings=self.findings,
            unused=self._unused(),
            is_preview=self.stack.dry_run,
        )

    def write_reports(self) -> None:
        """Write them into the folder that `TRAINYARD_POLICY_REPORTS` names, if it does."""
        if folder := self.stack.environment.get(REPORTS_VARIABLE):
            write(self.report(), Path(folder))

    def _unused(self) -> list[Exemption]:
        return [exemption for exemption in self.stack.exemptions if exemption not in self.evaluator.used]

    def _resource(self, request: analyzer_pb2.AnalyzeRequest) -> Resource:
        provider = request.provider
        return Resource(
            type=request.type,
            name=request.name,
            urn=request.urn,
            props=PropertyBlock(wire.decode(request.properties)),
            provider=Provider(
                provider.type, provider.name, PropertyBlock(wire.decode(provider.properties), "provider")
            ),
            stack=self.stack,
            protect=request.options.protect,
            secrets=wire.secret_paths(request.properties),
        )


def _related(resource: Resource, declared: analyzer_pb2.AnalyzerResource) -> RelatedResource[Resource]:
    depends_on = {name: tuple(origins.urns) for name, origins in declared.propertyDependencies.items()}
    return RelatedResource(resource, PropertyBlock(wire.decode(declared.properties)), depends_on)


@contextmanager
def _refusing(context: grpc.ServicerContext) -> Iterator[None]:
    """Stop the run with the configuration's problem as the message."""
    try:
        yield
    except PolicyConfigError as error:
        context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))


def _organisation(parameters: Mapping[str, Mapping[str, Any]]) -> Organisation:
    granted = parameters.get(EXEMPTIONS, {})
    allowed = parameters.get("residency-declared", {}).get("allowed")
    return Organisation(
        residency=None if allowed is None else check_patterns(tuple(allowed), "residency-declared.allowed"),
        exemptions=parse_exemptions(granted.get("granted", []), "exemptions.granted"),
        allows_stack_exemptions=granted.get("from_stack", True),
    )


def _check(stack: EvaluatedStack, policies: Sequence[Policy]) -> None:
    """Read all configuration once, so that a mistake in it stops the run rather than a policy."""
    _ = stack.residency, stack.refuses_unknown
    # Were there exemptions from the policy on exemptions, one of them could keep all others from expiring.
    names = {policy.name for policy in policies} - {EXEMPTIONS}
    for exemption in stack.exemptions:
        if exemption.policy not in names:
            raise PolicyConfigError(
                f"exemption of {exemption.owner}: got policy {exemption.policy!r}; allowed: a policy's name"
            )


def _policy_info(policy: Policy) -> analyzer_pb2.PolicyInfo:
    alone, together = analyzer_pb2.POLICY_TYPE_RESOURCE, analyzer_pb2.POLICY_TYPE_STACK
    info = analyzer_pb2.PolicyInfo(
        name=policy.name,
        displayName=policy.title,
        description=policy.title,
        enforcementLevel=LEVELS[policy.level],
        severity=SEVERITIES[policy.severity],
        policy_type=together if policy.together_with else alone,
        remediation_steps=policy.remedy,
    )
    if policy.frameworks:
        info.framework.name = "; ".join(policy.frameworks)
    json_format.ParseDict({**policy.parameters, **UNKNOWN_PARAMETER}, info.configSchema.properties)
    return info


def _diagnostic(finding: Finding) -> analyzer_pb2.AnalyzeDiagnostic:
    result = _advice(finding.policy.name, finding.policy.title, finding.message)
    result.message = "\n".join([finding.policy.title, finding.message, *finding.offer])
    result.enforcementLevel, result.severity = LEVELS[finding.level], SEVERITIES[finding.policy.severity]
    result.urn = finding.resource.urn
    return result


def _unused(exemption: Exemption) -> analyzer_pb2.AnalyzeDiagnostic:
    message = f"The exemption of {exemption.owner} for {exemption.resource} covers no violation: remove it."
    return _advice(exemption.policy, "Exemptions are needed", message)


def _advice(policy: str, description: str, message: str) -> analyzer_pb2.AnalyzeDiagnostic:
    return analyzer_pb2.AnalyzeDiagnostic(
        policyName=policy,
        policyPackName=pack.NAME,
        policyPackVersion=pack.VERSION,
        description=description,
        message=message,
        enforcementLevel=analyzer_pb2.ADVISORY,
    )


def serve(policies: Sequence[Policy]) -> None:
    """Serve the engine until it ends us; the first line on stdout is the port."""
    analyzer = Analyzer(policies)
    # Imports are permanent and evaluation creates no reference cycles: so collect garbage rarely.
    gc.freeze()
    gc.set_threshold(50_000)
    # One call at a time: policies over several resources see them in the engine's order.
    server = grpc.server(ThreadPoolExecutor(1), options=[("grpc.max_receive_message_length", -1)])
    analyzer_pb2_grpc.add_AnalyzerServicer_to_server(analyzer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    try:
        server.wait_for_termination()
    finally:
        server.stop(grace=None)
        analyzer.write_reports()  # the engine does not call AnalyzeStack in a stopped run
        presence.retract(analyzer.stack.project, analyzer.stack.name, analyzer.stack.environment)
