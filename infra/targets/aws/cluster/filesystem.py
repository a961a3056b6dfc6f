"""The shared filesystem on AWS (FSx for Lustre or EFS), new or existing: bucket link, backups, volumes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from infra.targets.aws.cluster.bucket import LINKED
from infra.targets.aws.cluster.identity import backup_role
from infra.targets.aws.cluster.keys import Keys
from infra.targets.aws.cluster.network import Network
from infra.targets.aws.cluster.scope import Scope
from infra.targets.aws.stackfile.target import EfsSpec, ExistingEfsSpec, ExistingLustreSpec, LustreSpec
from infra.targets.base import VolumeSource

LUSTRE_PORTS = ((988, 988), (1018, 1023))
NFS_PORTS = ((2049, 2049),)
_AT_NIGHT = "cron(0 5 * * ? *)"
"""Schedule of daily backups, at the time of AWS's own plan for EFS (UTC)."""
MAX_BACKUP_NAME = 50
"""Maximum length of the name of a backup vault, plan or selection (AWS Backup API reference)."""


@dataclass(frozen=True)
class Lustre:
    """Properties by which clients mount a Lustre filesystem."""

    id: pulumi.Input[str]
    dns_name: pulumi.Input[str]
    mount_name: pulumi.Input[str]


def use_lustre(
    scope: Scope, spec: LustreSpec, existing: ExistingLustreSpec, clients: pulumi.Input[str]
) -> Lustre:
    """Let the nodes reach a filesystem that exists, and its servers the nodes; rules of the stack."""
    _allow_ingress(scope, spec.role("lustre-clients"), existing.security_group, clients, LUSTRE_PORTS)
    _allow_ingress(scope, spec.role("lustre"), clients, existing.security_group, LUSTRE_PORTS)
    return Lustre(existing.id, f"{existing.id}.fsx.{scope.region}.amazonaws.com", existing.mount_name)


def use_efs(scope: Scope, spec: EfsSpec, existing: ExistingEfsSpec, clients: pulumi.Input[str]) -> str:
    """Let the nodes reach the mount targets that exist; return the filesystem's ID."""
    _allow_ingress(scope, spec.role("efs-clients"), existing.security_group, clients, NFS_PORTS)
    return existing.id


def make_lustre(
    scope: Scope,
    spec: LustreSpec,
    network: Network,
    keys: Keys,
    *,
    clients: Mapping[str, pulumi.Input[str]],
    snapshot_days: int,
) -> aws.fsx.LustreFileSystem:
    """Make the filesystem; `clients` are the groups of nodes: `cluster`, and `efa` where it is reached so."""
    role = spec.role("lustre")
    group = _group(scope, role, network, clients["cluster"], LUSTRE_PORTS)
    # Lustre servers also connect to clients, to revoke locks; EKS's security group admits only its members.
    _allow_ingress(scope, role, clients["cluster"], group.id, LUSTRE_PORTS)
    groups: list[pulumi.Input[str]] = [group.id, *([clients["efa"]] if spec.efa else [])]
    return aws.fsx.LustreFileSystem(
        scope.named(role),
        deployment_type="PERSISTENT_2",
        file_system_type_version="2.15",
        storage_type="SSD",
        storage_capacity=spec.capacity_gib,
        per_unit_storage_throughput=spec.throughput,
        data_compression_type="LZ4",
        efa_enabled=spec.efa,
        metadata_configuration=aws.fsx.LustreFileSystemMetadataConfigurationArgs(mode="AUTOMATIC"),
        subnet_ids=network.private_subnets[spec.zone or scope.spec.zones[0]],
        security_group_ids=groups,
        kms_key_id=keys.data,
        # FSx makes no backups of a filesystem that is linked to a bucket, which has the same data.
        automatic_backup_retention_days=snapshot_days,
        skip_final_backup=not snapshot_days,
        region=scope.region,
        tags={"Name": spec.role(scope.name)},
        opts=scope.options(protect=scope.spec.deletion_protection),
    )


def _allow_ingress(
    scope: Scope,
    role: str,
    group: pulumi.Input[str],
    source: pulumi.Input[str],
    ports: tuple[tuple[int, int], ...],
) -> None:
    """Let the members of one group reach those of another."""
    for first, last in ports:
        aws.vpc.SecurityGroupIngressRule(
            scope.named(f"{role}-{first}"),
            security_group_id=group,
            referenced_security_group_id=source,
            ip_protocol="tcp",
            from_port=first,
            to_port=last,
            region=scope.region,
            opts=scope.options(),
        )


def link_bucket(
    scope: Scope, filesystem: aws.fsx.LustreFileSystem, bucket: str, locks: Sequence[pulumi.Resource]
) -> None:
    """Synchronize the bucket's prefix and the filesystem; deleted files remain as old versions."""
    events = ["NEW", "CHANGED", "DELETED"]
    aws.fsx.DataRepositoryAssociation(
        scope.named("lustre"),
        file_system_id=filesystem.id,
        file_system_path="/",
        data_repository_path=f"s3://{bucket}/{LINKED}",
        batch_import_meta_data_on_create=True,
        delete_data_in_filesystem=False,
        s3=aws.fsx.DataRepositoryAssociationS3Args(
            auto_import_policy=aws.fsx.DataRepositoryAssociationS3AutoImportPolicyArgs(events=events),
            auto_export_policy=aws.fsx.DataRepositoryAssociationS3AutoExportPolicyArgs(events=events),
        ),
        region=scope.region,
        opts=scope.options(depends_on=locks),
    )


def lustre_volumes(filesystem: aws.fsx.LustreFileSystem | Lustre) -> VolumeSource:
    """Volumes of a Lustre filesystem: a folder is mounted by itself, so that no pod sees another team's."""

    def source(path: str) -> dict[str, Any]:
        below = f"/{path}" if path else ""
        attributes = {
            "dnsname": filesystem.dns_name,
            "mountname": pulumi.Output.concat(filesystem.mount_name, below),
        }
        handle = pulumi.Output.concat(filesystem.id, below)
        csi = {"driver": "fsx.csi.aws.com", "volumeHandle": handle, "volumeAttributes": attributes}
        return {"csi": csi, "mountOptions": ["flock"]}

    return source


def make_efs(
    scope: Scope, spec: EfsSpec, network: Network, keys: Keys, *, clients: Mapping[str, pulumi.Input[str]]
) -> aws.efs.FileSystem:
    """Make the filesystem, with a mount target in each zone; it is retained when the stack is destroyed."""
    role = spec.role("efs")
    filesystem = aws.efs.FileSystem(
        scope.named(role),
        encrypted=True,
        kms_key_id=keys.data,
        performance_mode="generalPurpose",
        throughput_mode="elastic",
        region=scope.region,
        tags={"Name": spec.role(scope.name)},
        opts=scope.options(protect=scope.spec.deletion_protection, retain_on_delete=True),
    )
    group = _group(scope, role, network, clients["cluster"], NFS_PORTS)
    for zone, subnet in network.private_subnets.items():
        aws.efs.MountTarget(
            scope.named(f"{role}-{zone}"),
            file_system_id=filesystem.id,
            subnet_id=subnet,
            security_groups=[group.id],
            region=scope.region,
            opts=scope.options(),
        )
    return filesystem


def back_up(scope: Scope, spec: EfsSpec, filesystem: aws.efs.FileSystem, keys: Keys, days: int) -> None:
    """Back up each night, retain for some days, encrypt by the stack's key; `destroy` deletes no backup."""
    name = scope.named(spec.role("efs"), MAX_BACKUP_NAME)
    vault = aws.backup.Vault(
        name,
        kms_key_arn=keys.data,
        region=scope.region,
        opts=scope.options(protect=scope.spec.deletion_protection, retain_on_delete=True),
    )
    plan = aws.backup.Plan(
        name,
        rules=[
            aws.backup.PlanRuleArgs(
                rule_name="daily",
                target_vault_name=vault.name,
                schedule=_AT_NIGHT,
                lifecycle=aws.backup.PlanRuleLifecycleArgs(delete_after=days),
            )
        ],
        region=scope.region,
        opts=scope.options(),
    )
    aws.backup.Selection(
        name,
        plan_id=plan.id,
        iam_role_arn=backup_role(scope),
        resources=[filesystem.arn],
        region=scope.region,
        opts=scope.options(),
    )


def efs_volumes(filesystem_id: pulumi.Input[str]) -> VolumeSource:
    """Volumes of an EFS filesystem; the driver mounts over TLS."""

    def source(path: str) -> dict[str, Any]:
        handle = pulumi.Output.concat(filesystem_id, f":/{path}" if path else "")
        return {"csi": {"driver": "efs.csi.aws.com", "volumeHandle": handle}}

    return source


def _group(
    scope: Scope, role: str, network: Network, clients: pulumi.Input[str], ports: tuple[tuple[int, int], ...]
) -> aws.ec2.SecurityGroup:
    """A group with some ports open to clients and to its members (Lustre's servers connect to each other)."""
    return aws.ec2.SecurityGroup(
        scope.named(role),
        description=f"{role} from nodes",
        vpc_id=network.vpc_id,
        ingress=[
            aws.ec2.SecurityGroupIngressArgs(
                protocol="tcp", from_port=first, to_port=last, security_groups=[clients], self=True
            )
            for first, last in ports
        ],
        egress=[
            aws.ec2.SecurityGroupEgressArgs(
                protocol="tcp", from_port=first, to_port=last, security_groups=[clients], self=True
            )
            for first, last in ports
        ],
        region=scope.region,
        opts=scope.options(),
    )
