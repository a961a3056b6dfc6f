"""Environment variables that every `pulumi` command on our stacks needs."""

FOR_ANY_PULUMI = {
    # While a ConfigMap is replaced, admission policies have no parameters and refuse everything.
    "PULUMI_K8S_ENABLE_CONFIGMAP_MUTABLE": "true",
    # A Secret that a controller fills, such as JobSet's certificate, is replaced at each refresh else.
    "PULUMI_K8S_ENABLE_SECRET_MUTABLE": "true",
    "PULUMI_FALLBACK_TO_STATE_SECRETS_MANAGER": "true",
    "PULUMI_IGNORE_AMBIENT_PLUGINS": "true",
    "PULUMI_SKIP_UPDATE_CHECK": "true",
}
