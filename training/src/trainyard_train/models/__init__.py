"""The networks to choose from."""
