"""Known AWS error messages, and what to do about each."""

from __future__ import annotations

from infra.targets.advice import RUN_AGAIN, Advice, unreachable

_REMOVE = (
    "a node group that has failed takes no change: remove it (`aws eks delete-nodegroup --cluster-name"
    " {cluster} --nodegroup-name {group}`), `pulumi refresh`"
)
_GROUP = r"EKS Node Group \((?P<cluster>[^:)]+):(?P<group>[^)]+)\).*"
_LEFT = (
    "a resource of the cluster remains in the VPC (a Service of type LoadBalancer, a pod's interface)."
    " List it (`aws ec2 describe-network-interfaces --filters Name=tag-key,Values=kubernetes.io/cluster/*`,"
    f" `aws elbv2 describe-load-balancers`), remove it, {RUN_AGAIN}"
)
ADVICE = (
    Advice(
        rf"{_GROUP}VcpuLimitExceeded",
        f"ask for more vCPUs (`trainyard doctor` names the quota and the command); {_REMOVE}, {RUN_AGAIN}",
    ),
    Advice(
        rf"{_GROUP}(InsufficientInstanceCapacity|no Spot capacity)",
        "EC2 has no capacity for these machines now: name another zone or machine for the pool, or wait; "
        f"{_REMOVE}, {RUN_AGAIN}",
    ),
    Advice(
        rf"{_GROUP}Capacity Reservation is not active",
        f"correct `starts` and `ends` of the pool's block; {_REMOVE}, {RUN_AGAIN}",
    ),
    Advice(
        r"Scheduled Action \((?P<action>[^)]+)\).*start time is in the past",
        "the capacity block began or ended while `up` ran ({action}). The next run requests its nodes at"
        f" once, or not at all: change nothing, {RUN_AGAIN}",
    ),
    Advice(
        r"Nodegroup cannot be updated as it is currently not in Active State",
        "its health has the reason (`aws eks describe-nodegroup`, health.issues): if EC2 has no capacity,"
        f" wait, {RUN_AGAIN}",
    ),
    Advice(
        r"unable to assume the service-linked role",
        "`aws iam create-service-linked-role --aws-service-name eks-nodegroup.amazonaws.com`, unless it"
        f" exists; wait a minute, {RUN_AGAIN}",
    ),
    Advice(
        r"permission to create the service-linked role for (EC2 )?Spot",
        f"`aws iam create-service-linked-role --aws-service-name spot.amazonaws.com`, {RUN_AGAIN}",
    ),
    Advice(
        r"MalformedPolicyDocumentException.*invalid principals",
        "a role that the key's policy names does not exist: make it (`aws iam create-service-linked-role"
        f" --aws-service-name autoscaling.amazonaws.com` for that of scaling groups), {RUN_AGAIN}",
    ),
    Advice(
        r"could not be assumed because it does not exist or the trusted entity",
        f"IAM takes some seconds to propagate a new role: wait a minute, {RUN_AGAIN}",
    ),
    Advice(
        r"AddressLimitExceeded",
        "release Elastic IPs or ask for more (`trainyard doctor` has the command), or write `nat: one`,"
        f" {RUN_AGAIN}",
    ),
    Advice(
        r"VpcLimitExceeded",
        "remove a VPC, ask for more (`aws service-quotas request-service-quota-increase --service-code vpc"
        " --quota-code L-F678F1CE --desired-value N`), or name an existing one (`network.existing`),"
        f" {RUN_AGAIN}",
    ),
    Advice(r"DependencyViolation", _LEFT),
    unreachable("target.access.public_cidrs"),
)
"""Advice for AWS's error messages, in the order in which patterns are tried."""
