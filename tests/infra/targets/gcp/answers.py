"""Fake values of the outputs that Google Cloud computes and our program uses."""

import base64
from collections.abc import Mapping
from typing import Any

CERTIFICATE = base64.b64encode(b"ca").decode()
DNS_NAME = "gke-0123456789abcdef-123456789012.europe-west1.gke.goog"


def computed(token: str, name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of a resource by its type, with readable names in place of generated ones."""
    found: dict[str, Any] = {} if "name" in inputs else {"name": f"{name}-0a1b2c3"}
    if token == "gcp:container/cluster:Cluster":
        endpoints = {"dnsEndpointConfig": {**_dns(inputs), "endpoint": DNS_NAME}}
        found |= {
            "controlPlaneEndpointsConfig": endpoints,
            "masterAuth": {"clusterCaCertificate": CERTIFICATE},
            "privateClusterConfig": {**inputs["privateClusterConfig"], "privateEndpoint": "10.64.0.2"},
        }
    if token == "gcp:serviceaccount/account:Account":
        found["email"] = f"{inputs['accountId']}@{inputs['project']}.iam.gserviceaccount.com"
    if token == "gcp:lustre/instance:Instance":
        found["mountPoint"] = f"10.64.48.2@tcp:/{inputs['filesystem']}"
    if token == "gcp:filestore/instance:Instance":
        found["networks"] = [{**inputs["networks"][0], "ipAddresses": ["10.64.48.2"]}]
    return found


def _dns(inputs: Mapping[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = inputs["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]
    return config
