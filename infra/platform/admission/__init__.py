"""Admission: what the API server refuses in the namespaces of teams, whoever asks for it.

`rules` is what must hold, one CEL expression and one message each. `jobs` is the table of paths: where each
kind of job has its pods. `policies` makes ValidatingAdmissionPolicies of the two, and `parameters` the lists
that differ from team to team, from the stack file.
"""

from infra.platform.admission.layer import Admission

__all__ = ["Admission"]
