"""Resource types of the provider plugin that are created on this host, imported on use."""
