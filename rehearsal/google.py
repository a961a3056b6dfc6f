"""What Google Cloud would add to the inputs of a resource, as far as a program builds on it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

DNS_NAME = "gke-0123456789abcdef-123456789012.rehearsal.gke.goog"
ADDRESS = "10.0.0.2"
_CERTIFICATE = base64.b64encode(b"rehearsal").decode()

OUTPUTS: Mapping[str, Mapping[str, Any]] = {
    "gcp:container/cluster:Cluster": {
        "controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": DNS_NAME}},
        "masterAuth": {"clusterCaCertificate": _CERTIFICATE},
    },
    "gcp:serviceaccount/account:Account": {"email": "nodes@rehearsal.iam.gserviceaccount.com"},
    "gcp:lustre/instance:Instance": {"mountPoint": f"{ADDRESS}@tcp:/rehearsal"},
    "gcp:filestore/instance:Instance": {"networks": [{"ipAddresses": [ADDRESS]}]},
}
"""By type."""
