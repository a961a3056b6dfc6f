#!/usr/bin/env python3
# Prints the image's Python, platform and packages as JSON, for `trainyard run --with`: list_packages.py
#
# Of a package's metadata only what a resolver reads; the first one of a name on the path is the one that is imported.
import importlib.metadata, json, platform, sys
READ = ("Metadata-Version", "Name", "Version", "Requires-Python", "Requires-Dist", "Provides-Extra")
found = dict[str, list[str]]()
for each in importlib.metadata.distributions():
    if each.metadata and each.metadata["Name"] and each.metadata["Version"]:
        lines = [f"{key}: {value}" for key in READ for value in each.metadata.get_all(key) or ()]
        found.setdefault(each.metadata["Name"], [each.version, "\n".join(lines) + "\n"])
libc = platform.libc_ver()[1] if platform.libc_ver()[0] == "glibc" else ""
json.dump({"python": platform.python_version(), "machine": platform.machine(), "libc": libc, "packages": found}, sys.stdout)
