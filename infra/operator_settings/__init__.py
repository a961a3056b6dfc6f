"""Settings of the operators that the platform installs, which targets fill in.

Each module has the name of the operator's module in `infra/platform`. They are a separate package, since
targets cannot import the platform, which imports the contract of targets.
"""
