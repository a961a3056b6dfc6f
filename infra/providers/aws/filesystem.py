"""The shared filesystem under checkpoints: FSx for Lustre, or EFS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_aws as aws

from infra.providers.aws.keys import Keys
from infra.providers.aws.network import Network
from infra.providers.aws.scope import Scope
from infra.providers.base import VolumeSource
from infra.spec.aws import LustreSpec

LUSTRE_PORTS = ((988, 988), (1018, 1023))
NFS_PORTS = ((2049, 2049),)
_LINKED = "filesystem"
"""Prefix of the bucket under which the filesystem's files are objects."""


def make_lustre(
    scope: Scope, spec: LustreSpec, network: Network, keys: Keys, *, clients: Mapping[str, pulumi.Input[str]]
) -> aws.fsx.LustreFileSystem:
    """Make the filesystem; `clients` are the groups of nodes: `cluster`, and `efa` where it is reached so."""
    group = _group(scope, "lustre", network, clients["cluster"], LUSTRE_PORTS)
    _let_servers_call_back(scope, group, clients["cluster"])
    groups: list[pulumi.Input[str]] = [group.id, *([clients["efa"]] if spec.efa else [])]
    return aws.fsx.LustreFileSystem(
        scope.named("lustre"),
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
        # What is linked to a bucket is there too, and FSx keeps no backups of it.
        automatic_backup_retention_days=spec.kept_backup_days,
        skip_final_backup=not spec.kept_backup_days,
        region=scope.region,
        tags={"Name": scope.name},
        opts=scope.options(protect=scope.spec.deletion_protection),
    )


def _let_servers_call_back(scope: Scope, servers: aws.ec2.SecurityGroup, clients: pulumi.Input[str]) -> None:
    """Lustre's servers connect to clients too, to take back locks; EKS's group lets nobody else in."""
    for first, last in LUSTRE_PORTS:
        aws.vpc.SecurityGroupIngressRule(
            scope.named(f"lustre-{first}"),
            security_group_id=clients,
            referenced_security_group_id=servers.id,
            ip_protocol="tcp",
            from_port=first,
            to_port=last,
            region=scope.region,
            opts=scope.options(),
        )


def link_bucket(
    scope: Scope, filesystem: aws.fsx.LustreFileSystem, bucket: str, locks: Sequence[pulumi.Resource]
) -> None:
    """Keep the bucket's prefix and the filesystem the same; files that are deleted stay as old versions."""
    events = ["NEW", "CHANGED", "DELETED"]
    aws.fsx.DataRepositoryAssociation(
        scope.named("lustre"),
        file_system_id=filesystem.id,
        file_system_path="/",
        data_repository_path=f"s3://{bucket}/{_LINKED}",
        batch_import_meta_data_on_create=True,
        delete_data_in_filesystem=False,
        s3=aws.fsx.DataRepositoryAssociationS3Args(
            auto_import_policy=aws.fsx.DataRepositoryAssociationS3AutoImportPolicyArgs(events=events),
            auto_export_policy=aws.fsx.DataRepositoryAssociationS3AutoExportPolicyArgs(events=events),
        ),
        region=scope.region,
        opts=scope.options(depends_on=locks),
    )


def lustre_volumes(filesystem: aws.fsx.LustreFileSystem) -> VolumeSource:
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
    scope: Scope, network: Network, keys: Keys, *, clients: Mapping[str, pulumi.Input[str]]
) -> aws.efs.FileSystem:
    """Make the filesystem, with a mount target in each zone; it is kept when the stack goes."""
    filesystem = aws.efs.FileSystem(
        scope.named("efs"),
        encrypted=True,
        kms_key_id=keys.data,
        performance_mode="generalPurpose",
        throughput_mode="elastic",
        region=scope.region,
        tags={"Name": scope.name},
        opts=scope.options(protect=scope.spec.deletion_protection, retain_on_delete=True),
    )
    group = _group(scope, "efs", network, clients["cluster"], NFS_PORTS)
    for zone, subnet in network.private_subnets.items():
        aws.efs.MountTarget(
            scope.named(f"efs-{zone}"),
            file_system_id=filesystem.id,
            subnet_id=subnet,
            security_groups=[group.id],
            region=scope.region,
            opts=scope.options(),
        )
    return filesystem


def efs_volumes(filesystem: aws.efs.FileSystem) -> VolumeSource:
    """Volumes of an EFS filesystem; the driver mounts over TLS."""

    def source(path: str) -> dict[str, Any]:
        handle = pulumi.Output.concat(filesystem.id, f":/{path}" if path else "")
        return {"csi": {"driver": "efs.csi.aws.com", "volumeHandle": handle}}

    return source


def _group(
    scope: Scope,
    role: str,
    network: Network,
    clients: pulumi.Input[str],
    ports: tuple[tuple[int, int], ...],
) -> aws.ec2.SecurityGroup:
    """A group that clients reach on some ports, and its own members too (Lustre's servers talk)."""
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
