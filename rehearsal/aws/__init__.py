"""Fake AWS: moto, and botocore's models for what moto lacks."""
