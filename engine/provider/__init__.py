"""The provider plugin `pulumi-resource-trainyard`: one module per resource type.

The engine calls it over gRPC; nothing of `infra` is imported here.
"""


def main() -> None:
    """Serve the engine until it ends."""
    from engine.provider.service import serve

    serve()
