"""Checks the AWS account before `up`: permissions, offerings, quotas, reservations, existing resources."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from botocore.exceptions import ClientError

from catalog import find_quota
from infra.errors import Problem
from infra.stackfile import Stack
from infra.stackfile.node_pool import ReservationSpec
from infra.targets.account import private_endpoint_is_unreachable, public_networks_are_real
from infra.targets.aws.account.rights import TAG
from infra.targets.aws.stackfile.groups import NodeGroup, groups
from infra.targets.aws.stackfile.target import AwsSpec, ExistingLustreSpec, LustreSpec

Client = Callable[[str], Any]
"""Function from a service's name to a boto3 client."""
NEWER = ("P6",)
"""Machine families newer than the catalogue's quotas, whose quotas are looked up by name in the account."""
RIGHTS = (
    "ec2:AllocateAddress",
    "ec2:CreateLaunchTemplate",
    "ec2:CreateNatGateway",
    "ec2:CreateVpc",
    "ec2:CreateVpcEndpoint",
    "eks:CreateAccessEntry",
    "eks:CreateCluster",
    "eks:CreateNodegroup",
    "eks:CreatePodIdentityAssociation",
    "iam:CreateRole",
    "iam:PassRole",
    "kms:CreateAlias",
    "kms:CreateKey",
    "logs:CreateLogGroup",
    "s3:CreateBucket",
    "s3:PutBucketPolicy",
)
"""Permissions without which an `up` fails half-way; the filesystem's permissions are added."""

ENDED = frozenset({"expired", "cancelled", "failed", "payment-failed", "unsupported"})
"""States of a reservation that provides no machines any more (EC2 API reference, CapacityReservation)."""
LINKED_ROLES = {
    "autoscaling": "AWSServiceRoleForAutoScaling",
    "eks": "AWSServiceRoleForAmazonEKS",
    "eks-nodegroup": "AWSServiceRoleForAmazonEKSNodegroup",
}
"""Service → its service-linked role, which is created on first use if the caller has
iam:CreateServiceLinkedRole."""
_PREFIX_ADDRESSES = 16
"""Addresses of a prefix (/28) that EC2 assigns to a network interface."""


def problems(stack: Stack, spec: AwsSpec, client: Client) -> Iterator[Problem]:
    """Find what the account lacks. Raises ClientError or BotoCoreError if AWS does not answer."""
    caller = client("sts").get_caller_identity()
    if caller["Account"] != spec.account:
        got, fix = caller["Account"], "sign in to the stack's account, or correct target.account"
        yield Problem("AWS account", got, spec.account, fix)
        return
    yield from _caller(caller["Arn"], spec)
    yield from public_networks_are_real(spec.access.public_cidrs)
    yield from _control_plane_access(stack, spec, client("eks"))
    yield from _rights(caller["Arn"], spec, client("iam"))
    yield from _linked_roles(stack, spec, client("iam"))
    bought = [group for pool in stack.pools for group in groups(pool, spec.zones)]
    yield from _offered(bought, client("ec2"))
    yield from _quotas(bought, client("service-quotas"))
    yield from _addresses(stack, spec, client)
    yield from _reservations(stack, client("ec2"))
    yield from _bucket(stack, spec, client("s3"))
    yield from _filesystem(spec, client)
    yield from _cluster(spec, client("eks"))


def role_of(arn: str) -> str:
    """Return the role behind a session's ARN, which is how an access entry has to name it."""
    found = re.fullmatch(r"arn:(aws[a-z-]*):sts::(\d{12}):assumed-role/([^/]+)/.*", arn)
    return f"arn:{found[1]}:iam::{found[2]}:role/{found[3]}" if found else arn


def _caller(arn: str, spec: AwsSpec) -> Iterator[Problem]:
    role = role_of(arn)
    # A role's path is in the ARN of the role, and not in that of its sessions.
    admins = {re.sub(r":role/.*/", ":role/", admin) for admin in spec.access.admins}
    if role not in admins:
        fix = "add the role to access.admins: EKS gives no rights to the cluster's creator"
        yield Problem("target.access.admins", f"{role} signs in", ", ".join(spec.access.admins), fix)


def _control_plane_access(stack: Stack, spec: AwsSpec, eks: Any) -> Iterator[Problem]:  # noqa: ANN401 -- boto3's
    if spec.access.public_cidrs or spec.network.existing:
        return
    if _described(eks.describe_cluster, name=stack.name) is None:
        yield private_endpoint_is_unreachable("target.access.public_cidrs", "the network of `up`'s host")


def _rights(arn: str, spec: AwsSpec, iam: Any) -> Iterator[Problem]:  # noqa: ANN401 -- boto3's
    """Simulate the principal's rights with IAM, which does not consider policies of the organisation."""
    service = {"lustre": "fsx", "efs": "elasticfilesystem"}[spec.filesystem.kind]
    makes = [] if spec.filesystem.existing else [f"{service}:CreateFileSystem"]
    path = "IAM permissions of the caller"
    try:
        principal = _principal(arn, iam)
        pages = iam.get_paginator("simulate_principal_policy").paginate(
            PolicySourceArn=principal, ActionNames=[*_wanted(spec), *makes]
        )
        found = [each for page in pages for each in page["EvaluationResults"]]
    except ClientError as error:
        if "AccessDenied" not in str(error):
            raise
        fix = "request iam:GetRole and iam:SimulatePrincipalPolicy, or compare the rights with docs/aws.md"
        yield Problem(path, "not known: the role may not query IAM", "rights to make the stack", fix)
        return
    denied = sorted(each["EvalActionName"] for each in found if each["EvalDecision"] != "allowed")
    if denied:
        yield Problem(path, f"not {', '.join(denied)}", "all of these", "request a role with these rights")


def _linked_roles(stack: Stack, spec: AwsSpec, iam: Any) -> Iterator[Problem]:  # noqa: ANN401 -- boto3's
    """Report service-linked roles that the account lacks: without its role a service fails silently."""
    services = {**LINKED_ROLES}
    if any(pool.is_spot for pool in stack.pools):
        services |= {"spot": "AWSServiceRoleForEC2Spot"}
    if isinstance(spec.filesystem, LustreSpec) and not spec.filesystem.existing:
        services |= {"fsx": "AWSServiceRoleForAmazonFSx"}
    for service, role in services.items():
        try:
            found = _described(iam.get_role, RoleName=role)
        except ClientError as error:
            if "AccessDenied" not in str(error):
                raise
            return  # `_rights` reports it
        if found is None:
            fix = f"`aws iam create-service-linked-role --aws-service-name {service}.amazonaws.com`"
            yield Problem(f"service-linked role {role}", "missing", "created once for the account", fix)


def _wanted(spec: AwsSpec) -> list[str]:
    """Return the permissions to ask for, without those to create what exists already."""
    cluster = {"eks:CreateCluster"} if spec.existing_cluster else set()
    vpc = {"ec2:AllocateAddress", "ec2:CreateNatGateway", "ec2:CreateVpc", "ec2:CreateVpcEndpoint"}
    spared = cluster | (vpc if spec.network.existing else set())
    return [right for right in RIGHTS if right not in spared]


def _principal(arn: str, iam: Any) -> str:  # noqa: ANN401 -- boto3's
    """The ARN of a session's role, with the path that the session's ARN lacks; a user's ARN as it is."""
    role = role_of(arn)
    if role == arn:
        return arn
    return str(iam.get_role(RoleName=role.rpartition("/")[2])["Role"]["Arn"])


def _addresses(stack: Stack, spec: AwsSpec, client: Client) -> Iterator[Problem]:
    """Check Elastic IPs of NAT gateways, or in existing subnets the addresses of nodes."""
    ec2 = client("ec2")
    existing = spec.network.existing
    if existing is not None:
        yield from _free_in_subnets(stack, spec, ec2)
        return
    needed = {"none": 0, "one": 1, "per-zone": len(spec.zones)}[spec.network.nat]
    code, name = _known("elastic-ip")
    ours = {"Key": TAG, "Value": stack.name}
    taken = sum(ours not in each.get("Tags", ()) for each in ec2.describe_addresses()["Addresses"])
    answer = client("service-quotas").get_service_quota(ServiceCode="ec2", QuotaCode=code)
    free = answer["Quota"]["Value"] - taken
    if free < needed:
        command = "aws service-quotas request-service-quota-increase --service-code ec2"
        fix = f"release some, or request more: {command} --quota-code {code} --desired-value {taken + needed}"
        yield Problem(f"quota: {name}", f"{needed} are needed", f"{free:g} are free", fix)


def _free_in_subnets(stack: Stack, spec: AwsSpec, ec2: Any) -> Iterator[Problem]:  # noqa: ANN401 -- boto3's
    assert spec.network.existing
    subnets = [*spec.network.existing.subnets.values()]
    ours = _addresses_of_nodes(stack, ec2)
    nodes: dict[str, int] = {}
    for pool in stack.pools:
        for group in groups(pool, spec.zones):
            for zone in group.zones:  # all nodes of a group may be placed in one of its zones
                nodes[zone] = nodes.get(zone, 0) + group.num_nodes
    for subnet in ec2.describe_subnets(SubnetIds=subnets)["Subnets"]:
        zone = subnet["AvailabilityZone"]
        free = subnet["AvailableIpAddressCount"] + ours.get(subnet["SubnetId"], 0)
        if free < nodes.get(zone, 0):
            fix = "use a larger subnet: each node and each of its pods takes an address"
            path = f"target.network.existing.subnets.{zone}"
            yield Problem(path, f"{free} addresses are free", f"{nodes[zone]} for the nodes", fix)


def _addresses_of_nodes(stack: Stack, ec2: Any) -> dict[str, int]:  # noqa: ANN401 -- boto3's
    """Subnet → number of addresses that the stack's nodes and their pods have already."""
    filters = [{"Name": f"tag:{TAG}", "Values": [stack.name]}]
    taken: dict[str, int] = {}
    for page in ec2.get_paginator("describe_instances").paginate(Filters=filters):
        instances = [each for reservation in page["Reservations"] for each in reservation["Instances"]]
        for interface in (each for instance in instances for each in instance["NetworkInterfaces"]):
            count = len(interface["PrivateIpAddresses"])
            count += _PREFIX_ADDRESSES * len(interface.get("Ipv4Prefixes", ()))
            taken[interface["SubnetId"]] = taken.get(interface["SubnetId"], 0) + count
    return taken


def _offered(bought: list[NodeGroup], ec2: Any) -> Iterator[Problem]:  # noqa: ANN401 -- boto3's
    names = sorted({machine.name for group in bought for machine in group.machines})
    pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": names}]
    )
    offered = {
        (each["InstanceType"], each["Location"]) for page in pages for each in page["InstanceTypeOfferings"]
    }
    for group, machine in ((each, machine.name) for each in bought for machine in each.machines):
        lacking = [zone for zone in group.zones if (machine, zone) not in offered]
        if lacking:
            zones = sorted(zone for name, zone in offered if name == machine)
            allowed = f"a zone that offers it: {', '.join(zones) or 'none in this region'}"
            path = f"pools[{group.pool.name}].zones"
            yield Problem(path, f"{machine} in {', '.join(lacking)}", allowed, "choose one of these")


def _quotas(bought: list[NodeGroup], quotas: Any) -> Iterator[Problem]:  # noqa: ANN401 -- boto3's
    needed: dict[tuple[str, str], int] = {}
    for group in bought:
        if group.pool.capacity == "reserved" or (quota := _quota(group, quotas)) is None:
            continue
        largest = max(machine.vcpus for machine in group.machines)  # all may be of one type
        needed[quota] = needed.get(quota, 0) + group.num_nodes * largest
    for (code, name), vcpus in needed.items():
        allowed = quotas.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]["Value"]
        if allowed < vcpus:
            command = "aws service-quotas request-service-quota-increase --service-code ec2"
            fix = f"ask for more: {command} --quota-code {code} --desired-value {vcpus}"
            yield Problem(f"quota: {name}", f"{vcpus} vCPUs are needed", f"{allowed:g} vCPUs", fix)


def _quota(group: NodeGroup, quotas: Any) -> tuple[str, str] | None:  # noqa: ANN401 -- boto3's
    """The quota that a group counts against; None where the account lists none for its family."""
    name, spot = group.machine.name, group.pool.is_spot
    newer = next((family for family in NEWER if name.startswith(family.lower())), None)
    if newer and ((listed := _listed(newer, quotas, is_spot=spot)) or spot):
        return listed
    if spot and name.startswith("p5"):
        return _known("P5", is_spot=True)
    family = {"p": "P", "g": "G"}.get(name[0], "Standard")
    return _known(family, is_spot=spot)


def _known(family: str, *, is_spot: bool = False) -> tuple[str, str]:
    """Return code and name in Service Quotas, in vCPUs."""
    found = find_quota("aws", family, is_spot=is_spot)
    assert found, family
    return found.id, found.title


def _listed(family: str, quotas: Any, *, is_spot: bool) -> tuple[str, str] | None:  # noqa: ANN401 -- boto3's
    """Look for a quota that names the family: `All P6 Spot Instance Requests`."""
    pages = quotas.get_paginator("list_service_quotas").paginate(ServiceCode="ec2")
    found = {each["QuotaName"]: each["QuotaCode"] for page in pages for each in page["Quotas"]}
    kind = "Spot Instance Requests" if is_spot else "On-Demand"
    names = [name for name in found if kind in name and re.search(rf"\b{family}\b", name)]
    return (found[names[0]], names[0]) if names else None


def _reservations(stack: Stack, ec2: Any) -> Iterator[Problem]:  # noqa: ANN401 -- boto3's
    for pool in stack.pools:
        if pool.reservation is None:
            continue
        path = f"pools[{pool.name}].reservation.id"
        actual = _described(ec2.describe_capacity_reservations, CapacityReservationIds=[pool.reservation.id])
        if actual is None:
            yield Problem(path, f"{pool.reservation.id}: does not exist", "a reservation", "correct the ID")
            continue
        (found,) = actual["CapacityReservations"]
        if found["InstanceType"] != pool.machine:
            got = f"a reservation of {found['InstanceType']}"
            yield Problem(path, got, str(pool.machine), "name one of the pool's machine")
        elif found["TotalInstanceCount"] < pool.num_nodes:
            got = f"{found['TotalInstanceCount']} machines"
            yield Problem(path, got, f"{pool.num_nodes} for the pool", "lower `nodes`, or reserve more")
        elif found.get("State") in ENDED:
            fix = "remove the pool, or make a new reservation and name it"
            yield Problem(path, f"{pool.reservation.id} is {found['State']}", "active, or in the future", fix)
        elif pool.reservation.starts:
            yield from _times(pool.name, pool.reservation, found)
        else:
            yield from _placement(pool.name, pool.reservation, found)


def _placement(pool: str, written: ReservationSpec, found: Any) -> Iterator[Problem]:  # noqa: ANN401 -- boto3's
    """Compare the placement group: a reservation that was made in one is for launches there alone."""
    actual = str(found.get("PlacementGroupArn") or "").rpartition("/")[2]
    if (written.placement_group or "") != actual:
        fix = f"write `placement_group: {actual}`" if actual else "remove the key, or reserve in that group"
        path = f"pools[{pool}].reservation.placement_group"
        yield Problem(path, str(written.placement_group or "none"), actual or "none", fix)


def _times(pool: str, written: ReservationSpec, found: Any) -> Iterator[Problem]:  # noqa: ANN401 -- boto3's
    """Compare start and end with the block's: at a wrong time its nodes cost and are unused."""
    times = {
        "starts": (written.starts, written.begins_at, found.get("StartDate")),
        "ends": (written.ends, written.ends_at, found.get("EndDate")),
    }
    for key, (text, moment, actual) in times.items():
        if actual is not None and actual != moment:
            path = f"pools[{pool}].reservation.{key}"
            yield Problem(path, str(text), f"{actual:%Y-%m-%dT%H:%M:%SZ}", "write the time of the block")


def _bucket(stack: Stack, spec: AwsSpec, s3: Any) -> Iterator[Problem]:  # noqa: ANN401 -- boto3's
    bucket = stack.storage.object_store.bucket
    try:
        s3.head_bucket(Bucket=bucket)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code == "403":
            fix = "choose another: bucket names are globally unique"
            got = f"{bucket} belongs to another owner"
            yield Problem("storage.object_store.bucket", got, "an unused name", fix)
        elif code != "404":
            raise
        elif spec.existing_bucket:
            fix = "correct the name, or set existing_bucket: false to create it"
            yield Problem("storage.object_store.bucket", f"{bucket} does not exist", "a bucket of yours", fix)


def _filesystem(spec: AwsSpec, client: Client) -> Iterator[Problem]:
    """An existing filesystem, which nodes of every zone can mount."""
    existing = spec.filesystem.existing
    if existing is None:
        return
    path = "target.filesystem.existing"
    if isinstance(existing, ExistingLustreSpec):
        actual = _described(client("fsx").describe_file_systems, FileSystemIds=[existing.id])
    else:
        actual = _described(client("efs").describe_mount_targets, FileSystemId=existing.id)
    if actual is None:
        fix = "correct the ID, or omit `existing` to create one"
        yield Problem(f"{path}.id", f"{existing.id}: does not exist", "a filesystem of the region", fix)
    elif isinstance(existing, ExistingLustreSpec):
        (found,) = actual["FileSystems"]
        kind = found["FileSystemType"]
        name = found.get("LustreConfiguration", {}).get("MountName", "")
        if kind != "LUSTRE":
            fix = "name a filesystem of FSx for Lustre, or omit `existing` to create one"
            yield Problem(f"{path}.id", f"{existing.id}: of type {kind}", "LUSTRE", fix)
        elif name != existing.mount_name:
            fix = "write the name that `aws fsx describe-file-systems` shows"
            yield Problem(f"{path}.mount_name", existing.mount_name, name, fix)
    else:
        zones = {each["AvailabilityZoneName"] for each in actual["MountTargets"]}
        if lacking := [zone for zone in spec.zones if zone not in zones]:
            fix = "make a mount target in each zone of the stack"
            yield Problem(path, f"no mount target in {', '.join(lacking)}", "one in each zone", fix)


def _cluster(spec: AwsSpec, eks: Any) -> Iterator[Problem]:  # noqa: ANN401 -- boto3's
    """An existing cluster: as the stack file describes it, and running."""
    existing = spec.existing_cluster
    if existing is None:
        return
    path = "target.existing_cluster"
    answer = _described(eks.describe_cluster, name=existing.name)
    if answer is None:
        fix = "correct the name or the region, or omit `existing_cluster` to create one"
        yield Problem(f"{path}.name", f"{existing.name}: does not exist", "a cluster of the region", fix)
        return
    found = answer["cluster"]
    network = found["resourcesVpcConfig"]
    pages = eks.get_paginator("list_addons").paginate(clusterName=existing.name)
    addons = {addon for page in pages for addon in page["addons"]}
    facts: dict[str, tuple[object, object]] = {
        "endpoint": (existing.endpoint, found.get("endpoint")),
        "certificate_authority": (
            existing.certificate_authority,
            found.get("certificateAuthority", {}).get("data"),
        ),
        "security_group": (existing.security_group, network.get("clusterSecurityGroupId")),
        "version": (existing.version, found["version"]),
        "authentication_mode": (
            existing.authentication_mode,
            found.get("accessConfig", {}).get("authenticationMode"),
        ),
    }
    for key, (written, is_so) in facts.items():
        if written != is_so:
            fix = f"write what `aws eks describe-cluster --name {existing.name}` shows"
            yield Problem(f"{path}.{key}", _short(written), _short(is_so), fix)
    if lacking := [addon for addon in existing.addons if addon not in addons]:
        fix = "`aws eks create-addon`; EKS lists an add-on installed by hand only once it manages it"
        yield Problem(
            f"{path}.addons", f"{', '.join(lacking)}: does not exist", "add-ons of the cluster", fix
        )
    vpc = spec.network.existing.id if spec.network.existing else ""
    if network.get("vpcId") != vpc:
        fix = "name the cluster's own VPC, and its subnets"
        yield Problem("target.network.existing.id", vpc, str(network.get("vpcId")), fix)
    if found["status"] != "ACTIVE":
        yield Problem(f"{path}.name", f"{existing.name} is {found['status']}", "ACTIVE", "wait until it is")


def _described(describe: Callable[..., Any], **which: Any) -> Any:  # noqa: ANN401 -- boto3's
    """Ask AWS for something; None where there is no such thing."""
    try:
        return describe(**which)
    except ClientError as error:
        if not re.search("NotFound|NoSuchEntity", str(error)):
            raise
        return None


def _short(value: object, most: int = 60) -> str:
    """Return a value as text, cut off where it is long: a certificate fills a screen."""
    text = str(value)
    return text if len(text) <= most else f"{text[:most]}…"


def unasked(error: Exception) -> Problem:
    """Report that the account could not be asked."""
    fix = "sign in (`aws sso login`) with read permissions: this check changes nothing"
    return Problem("AWS account", str(error), "an answer", fix)
