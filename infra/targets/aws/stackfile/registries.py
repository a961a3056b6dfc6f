"""The ECR registry from which EKS serves its images, by region.

Source: Amazon EKS user guide, "View Amazon container image registries for Amazon EKS add-ons"
(add-ons-images.html), as the guide of GuardDuty's agent for EKS repeats it, read 2026-11-23.
"""

from collections.abc import Mapping

USUAL_ACCOUNT = "602401143452"
PINNED_AT = f"{USUAL_ACCOUNT}.dkr.ecr.us-west-2.amazonaws.com"
"""Registry in the pinned references of EKS's images."""
ACCOUNTS: Mapping[str, str] = {
    "af-south-1": "877085696533",
    "ap-east-1": "800184023465",
    "ap-east-2": "533267051163",
    "ap-south-2": "900889452093",
    "ap-southeast-3": "296578399912",
    "ap-southeast-4": "491585149902",
    "ap-southeast-5": "151610086707",
    "ap-southeast-7": "121268973566",
    "ca-west-1": "761377655185",
    "cn-north-1": "918309763551",
    "cn-northwest-1": "961992271922",
    "eu-central-2": "900612956339",
    "eu-south-1": "590381155156",
    "eu-south-2": "455263428931",
    "il-central-1": "066635153087",
    "me-central-1": "759879836304",
    "me-south-1": "558608220178",
    "mx-central-1": "730335286997",
    "us-gov-east-1": "151742754352",
    "us-gov-west-1": "013241004608",
}
"""Region → account of its registry, for regions without the usual account."""
UNKNOWN = ("ap-southeast-6", "eusc-de-east-1")
"""Regions that the source does not list."""


def registry_of(region: str) -> str:
    """Return the host of a region's registry, in the domain of the region's partition."""
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"{ACCOUNTS.get(region, USUAL_ACCOUNT)}.dkr.ecr.{region}.{domain}"
