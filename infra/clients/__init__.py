"""HTTP clients of the clouds' APIs, with the user's own token, for account checks and the provider plugin."""
