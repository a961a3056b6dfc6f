"""Example of the policy pack on a program without Trainyard: a KMS key, a bucket and a firewall rule on
Google Cloud that violate five policies, or none with `compliant: true`.

Resources are declared by their type tokens, so that the example runs without the large SDK; the engine and
the policies see the same as with `gcp.kms.KeyRing`, `gcp.storage.Bucket` and `gcp.compute.Firewall`.
`pulumi preview --policy-pack ../..` fails on five; it passes with `pulumi config set compliant true`.
"""

import pulumi

compliant = pulumi.Config().get_bool("compliant") or False
labels = {"owner": "data", "cost-center": "4711"}

ring = pulumi.CustomResource(
    "gcp:kms/keyRing:KeyRing", "data", {"location": "europe-west4" if compliant else "global"}
)
key = pulumi.CustomResource("gcp:kms/cryptoKey:CryptoKey", "data", {"keyRing": ring.id, "labels": labels})
pulumi.CustomResource(
    "gcp:storage/bucket:Bucket",
    "training-data",
    {
        "location": "EUROPE-WEST4" if compliant else "EU",
        "publicAccessPrevention": "enforced" if compliant else "inherited",
        "uniformBucketLevelAccess": True,
        "forceDestroy": not compliant,
        # Unknown until the key is created; the policy only requires one.
        **({"encryption": {"defaultKmsKeyName": key.id}} if compliant else {}),
        "labels": labels if compliant else {"owner": "data"},
    },
)
pulumi.CustomResource(
    "gcp:compute/firewall:Firewall",
    "workbench",
    {
        "network": "default",
        "direction": "INGRESS",
        "allows": [{"protocol": "tcp", "ports": ["8888"]}],
        "sourceRanges": ["10.0.0.0/16" if compliant else "0.0.0.0/0"],
    },
)
