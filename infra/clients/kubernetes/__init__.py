"""The one way to an API server of Kubernetes: requests, logs and watches by urllib3, exec and port-forward
by websocket-client. The official client is 75 MB, and waits for answers forever; kr8s and httpx take 0.2 s of
each command to import, and kr8s is asynchronous within.
"""

from infra.clients.kubernetes.access import ClusterAccess, PluginError
from infra.clients.kubernetes.api import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    SILENCE_SECONDS,
    ApiError,
    ApiServer,
    NoAnswer,
    Object,
)
from infra.clients.kubernetes.pods import PodConnection, PortConnection, ProgramExit

__all__ = [
    "ANSWER_SECONDS",
    "CONNECT_SECONDS",
    "SILENCE_SECONDS",
    "ApiError",
    "ApiServer",
    "ClusterAccess",
    "NoAnswer",
    "Object",
    "PluginError",
    "PodConnection",
    "PortConnection",
    "ProgramExit",
]
