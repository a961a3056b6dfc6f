"""Resource types of the provider plugin that run on this host; `engine.provider` imports them on use."""
