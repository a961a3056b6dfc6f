"""What to do where Google Cloud refuses."""

from __future__ import annotations

from infra.targets.advice import Advice

_AGAIN = "and run the same command again: what is done is kept"
ADVICE = (
    Advice(
        r"GCE_STOCKOUT|ZONE_RESOURCE_POOL_EXHAUSTED",
        "Compute Engine has none of these machines now. The node pool is there, and GKE goes on"
        " looking for them:"
        " run the same command again when they have come, or give the pool another zone or machine, or"
        " `provisioning: queued`, with which it begins empty",
    ),
    Advice(
        r"API has not been used in project (?P<project>\S+) before or it is disabled.*api/(?P<api>[\w.]+)/",
        "`gcloud services enable {api} --project {project}` (`trainyard doctor` lists all that are"
        " off), wait a"
        f" few minutes, {_AGAIN}",
    ),
    Advice(
        r"Service account \S*@container-engine-robot\S* does not exist",
        f"`gcloud beta services identity create --service=container.googleapis.com --project"
        f" PROJECT`, {_AGAIN}",
    ),
    Advice(
        r"Service account \S*@gs-project-accounts\S* does not exist",
        f"`gcloud storage service-agent --project PROJECT` makes it, {_AGAIN}",
    ),
    Advice(
        r"Service account \S* does not exist",
        "an agent of Google's is made when its service is first used: `gcloud beta services identity"
        " create"
        f" --service=SERVICE.googleapis.com --project PROJECT`, wait a minute, {_AGAIN}",
    ),
    Advice(
        r"[Ii]nsufficient regional quota to satisfy request: resource \W*(?P<quota>\w+)",
        f"ask for more of {{quota}} in the stack's region: IAM & Admin > Quotas, {_AGAIN}",
    ),
    Advice(
        r"Deleting Network.*is already being used by '(?P<left>[^']+)'",
        "something that the cluster made is left: {left}. Remove it (`gcloud compute firewall-rules"
        " delete`,"
        f" `gcloud compute network-endpoint-groups delete`, by what its path says), {_AGAIN}",
    ),
)
"""In the order in which they are tried."""
