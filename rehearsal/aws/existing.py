"""Creates the resources that a stack file expects to exist (VPC, subnets, security groups, cluster, bucket)
in moto.

moto generates new IDs. Clients replace the stack file's IDs by moto's in requests, and moto's by the stack
file's in answers (`models.motos_ids`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network

from rehearsal.aws import models
from rehearsal.aws.requests import bucket_location

VPC_CIDR = IPv4Network("10.0.0.0/16")


@dataclass(frozen=True)
class Existing:
    """Names and IDs of existing resources; empty for those that the stack creates."""

    vpc: str = ""
    subnets: Mapping[str, str] = field(default_factory=dict)
    """Zone → ID of its subnet."""
    groups: Sequence[str] = ()
    """IDs of the security groups in the VPC."""
    cluster: str = ""
    bucket: str = ""

    def put(self, region: str) -> dict[str, str]:
        """Make it all in moto; return AWS's ID → moto's."""
        known = self._network(region) if self.vpc else {}
        if self.cluster:
            subnets = [known[each] for each in self.subnets.values()]
            models.client("eks", region).create_cluster(
                name=self.cluster,
                roleArn="arn:aws:iam::123456789012:role/owner",
                resourcesVpcConfig={"subnetIds": subnets},
            )
        if self.bucket:
            models.client("s3", region).create_bucket(Bucket=self.bucket, **bucket_location(region))
        return known

    def _network(self, region: str) -> dict[str, str]:
        ec2 = models.client("ec2", region)
        vpc = ec2.create_vpc(CidrBlock=str(VPC_CIDR))["Vpc"]["VpcId"]
        known = {self.vpc: vpc}
        for (zone, subnet), cidr in zip(self.subnets.items(), VPC_CIDR.subnets(new_prefix=20), strict=False):
            made = ec2.create_subnet(VpcId=vpc, CidrBlock=str(cidr), AvailabilityZone=zone)
            known[subnet] = made["Subnet"]["SubnetId"]
        for group in self.groups:
            made = ec2.create_security_group(GroupName=group, Description="there already", VpcId=vpc)
            known[group] = made["GroupId"]
        return known
