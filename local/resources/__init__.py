"""Resource types of the provider plugin that are created on this host; `engine.provider` imports them on use.
"""
