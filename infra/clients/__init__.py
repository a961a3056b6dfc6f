"""HTTP clients of Azure's and Google Cloud's APIs, with the user's own token."""
