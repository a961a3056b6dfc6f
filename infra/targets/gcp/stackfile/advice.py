"""Known Google Cloud error messages, and what to do about each."""

from __future__ import annotations

from infra.targets.advice import RUN_AGAIN, Advice, unreachable

ADVICE = (
    Advice(
        r"machine type (?P<machine>[\w-]+) is not available on demand",
        "Google Cloud sells {machine} in other ways only (`trainyard catalog machines --cloud gcp`):"
        f" write `capacity: spot`, `provisioning: all-at-once` or a `reservation`, {RUN_AGAIN}",
    ),
    Advice(
        r"GCE_STOCKOUT|ZONE_RESOURCE_POOL_EXHAUSTED",
        "Compute Engine has no capacity for these machines now. The node pool exists, and GKE retries:"
        " run the same command again when nodes exist, or give the pool another zone or machine",
    ),
    Advice(
        r"API has not been used in project (?P<project>\S+) before or it is disabled.*api/(?P<api>[\w.]+)/",
        "`gcloud services enable {api} --project {project}` (`trainyard doctor` lists all disabled ones),"
        f" wait a few minutes, {RUN_AGAIN}",
    ),
    Advice(
        r"Service account \S*@container-engine-robot\S* does not exist",
        "`gcloud beta services identity create --service=container.googleapis.com --project PROJECT`,"
        f" {RUN_AGAIN}",
    ),
    Advice(
        r"Service account \S*@gs-project-accounts\S* does not exist",
        f"`gcloud storage service-agent --project PROJECT` creates it, {RUN_AGAIN}",
    ),
    Advice(
        r"Service account \S* does not exist",
        "a service agent of Google Cloud is created when its service is first used:"
        " `gcloud beta services identity create --service=SERVICE.googleapis.com --project PROJECT`,"
        f" wait a minute, {RUN_AGAIN}",
    ),
    Advice(
        r"[Ii]nsufficient regional quota to satisfy request: resource \W*(?P<quota>\w+)",
        f"ask for more of {{quota}} in the stack's region: IAM & Admin > Quotas, {RUN_AGAIN}",
    ),
    Advice(
        r"Deleting Network.*is already being used by '(?P<left>[^']+)'",
        "a resource that the cluster created remains: {left}. Remove it with the command for its path"
        " (`gcloud compute firewall-rules delete`, `gcloud compute network-endpoint-groups delete`),"
        f" {RUN_AGAIN}",
    ),
    unreachable("target.access.dns_endpoint"),
)
"""Advice for Google Cloud's error messages, in the order in which patterns are tried."""
