#!/usr/bin/env python3
# Sets a bucket's policy as an extended attribute of its folder, where versitygw reads it. Arguments: folder, policy.
import os
import sys

POLICY, ACCESS_LIST = "user.policy", "user.acl"
folder, policy = sys.argv[1:]
os.setxattr(folder, POLICY, policy.encode())
if ACCESS_LIST not in os.listxattr(folder):
    # versitygw 1.8 reads the list of a copy's source even where a policy decides, and takes none for a fault.
    os.setxattr(folder, ACCESS_LIST, b'{"Owner": "trainyard", "Grantees": []}')
