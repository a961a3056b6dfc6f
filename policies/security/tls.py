"""Policy: buckets, listeners, databases and services take TLS 1.2 or later only, by their settings' values on
any type; private storage accounts with NFS are exempt from HTTPS.
"""

import re
from collections.abc import Iterator, Mapping

from policies.documents import conditions, principals, statements
from policies.policy import Policy, Resource, Violation
from policies.rules import must_avoid, must_equal, refused
from policies.unknowns import PropertyBlock, Value

OLD = ("TLS1_0", "TLS1_1")
STORAGE = "azure-native:storage:StorageAccount"
OFF_BY_DEFAULT = {
    "aws:elasticache/replicationGroup:ReplicationGroup": "transitEncryptionEnabled",
    "azure-native:web:WebApp": "httpsOnly",
}
_ALL_ACTIONS = {"*", "s3:*"}
_ALL_OBJECTS = re.compile(r"[^/]*/?\*")
"""`*`, or the ARN of a bucket with `/*`, which is no prefix within it."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Settings by their values; buckets deny plain HTTP, storage accounts take TLS 1.2, listeners HTTPS."""
    props = resource.props
    yield from must_avoid(props, refused("security-tls"))
    if (switch := OFF_BY_DEFAULT.get(resource.type)) and not props.has(switch):
        yield Violation(switch, "nothing", "true")
    if resource.type == STORAGE:
        # NFS 3.0 has no TLS, and is allowed only if the account is reachable only from its network.
        if not (props.get("enableNfsV3") and props.get("publicNetworkAccess") == "Disabled"):
            yield from must_equal(props, "enableHttpsTrafficOnly", True, default=True)
        if not props.has("minimumTlsVersion"):
            yield Violation("minimumTlsVersion", "nothing", "TLS 1.2 or later")
    elif resource.type.endswith("b/listener:Listener"):
        redirect = props.get("defaultActions.type") == "redirect"
        if props.get("protocol") == "HTTP" and not redirect:
            yield Violation("protocol", "HTTP", "HTTPS, or a redirect to it")
    elif resource.type.endswith(":BucketPolicy") and not any(
        refuses_http(statement) for statement in statements(props, "policy")
    ):
        yield Violation(
            "policy",
            "no statement that denies plain HTTP",
            "Deny s3:* on all objects to Principal *, with aws:SecureTransport false as its one condition",
        )
    elif resource.type == "gcp:sql/databaseInstance:DatabaseInstance":
        network = props.block("settings.ipConfiguration")
        if network.count("authorizedNetworks") and not (network.has("sslMode") or network.has("requireSsl")):
            yield Violation(network.at("sslMode"), "nothing", "ENCRYPTED_ONLY")


def remediate(resource: Resource) -> Mapping[str, Value]:
    """Limit storage accounts to HTTPS with TLS 1.2, which every client of the last ten years can use."""
    if resource.type != STORAGE:
        return {}
    patch: dict[str, Value] = {}
    if resource.props.get("enableHttpsTrafficOnly", True) is not True and not resource.props.get(
        "enableNfsV3"
    ):
        patch["enableHttpsTrafficOnly"] = True
    if resource.props.get("minimumTlsVersion", "TLS1_0") in OLD:
        patch["minimumTlsVersion"] = "TLS1_2"
    return patch


def refuses_http(statement: PropertyBlock) -> bool:
    """Whether the statement denies plain HTTP: any action on any object, to all principals."""
    tests = [(operator, key, *map(str.lower, values)) for operator, key, values in conditions(statement)]
    return (
        statement.get("Effect") == "Deny"
        and "*" in list(principals(statement))
        and not _ALL_ACTIONS.isdisjoint(map(str.lower, statement.texts("Action")))
        and any(map(_ALL_OBJECTS.fullmatch, statement.texts("Resource")))
        # With a further condition, requests that do not meet it could use plain HTTP.
        and len(tests) == 1
        and tests[0] in {(name, "aws:securetransport", "false") for name in ("bool", "boolifexists")}
    )


POLICY = Policy(
    name="security-tls",
    title="Storage and load balancers accept TLS only",
    reason="A client with plain HTTP sends data and its signature unencrypted.",
    remedy="Deny requests where aws:SecureTransport is false; set the minimum TLS version.",
    types=("aws:*", "azure-native:*", "gcp:*"),
    evaluate=evaluate,
    remediate=remediate,
    frameworks=("AWS FSBP S3.5", "AWS FSBP ELB.1", "NIST SP 800-53 SC-8"),
)
