"""Clients of clouds' APIs, which accounts and the provider plugin ask with the user's own token."""
