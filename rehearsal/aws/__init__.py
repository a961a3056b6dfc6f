"""The fake of AWS: moto's API, with validation by botocore's models."""
