"""Admission policies of the team namespaces: ValidatingAdmissionPolicies, and the ConfigMap of each team's
permitted values.

`rules.yaml` has a CEL expression and a message for each rule. `jobs` is the table of paths: where each kind
of job has its pod templates. `policies` makes ValidatingAdmissionPolicies of the two, and `parameters` the
lists that differ between teams, from the stack file.
"""
