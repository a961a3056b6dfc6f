# shellcheck shell=bash
# Sourced by jobs that operate a cloud: writes the job's tokens to files, from which each SDK gets its credentials.
# CREDENTIALS is the folder of these files, which the job deletes at its end.
mkdir -p "$CREDENTIALS"
chmod 700 "$CREDENTIALS"

keep() { # NAME CONTENT: a file that only this user can read
  (umask 077 && printf '%s' "$2" > "$CREDENTIALS/$1")
}

if [ -n "${AWS_ROLE_ARN:-}" ]; then
  keep aws "$AWS_TOKEN"
  export AWS_WEB_IDENTITY_TOKEN_FILE=$CREDENTIALS/aws AWS_ROLE_SESSION_NAME=trainyard-${CI_PIPELINE_ID:-0}
fi
if [ -n "${GOOGLE_PROVIDER:-}" ]; then # projects/NUMBER/locations/global/workloadIdentityPools/POOL/providers/PROVIDER
  keep google "$GOOGLE_TOKEN"
  keep google.json '{
    "type": "external_account",
    "audience": "//iam.googleapis.com/'"$GOOGLE_PROVIDER"'",
    "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
    "token_url": "https://sts.googleapis.com/v1/token",
    "service_account_impersonation_url":
      "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts/'"$GOOGLE_SERVICE_ACCOUNT"':generateAccessToken",
    "credential_source": {"file": "'"$CREDENTIALS"'/google"}
  }'
  export GOOGLE_APPLICATION_CREDENTIALS=$CREDENTIALS/google.json
fi
if [ -n "${AZURE_CLIENT_ID:-}" ]; then
  keep azure "$AZURE_TOKEN"
  export AZURE_CLIENT_ID AZURE_TENANT_ID AZURE_FEDERATED_TOKEN_FILE=$CREDENTIALS/azure
  export ARM_USE_OIDC=true ARM_CLIENT_ID=$AZURE_CLIENT_ID ARM_TENANT_ID=$AZURE_TENANT_ID
  export ARM_SUBSCRIPTION_ID=$AZURE_SUBSCRIPTION_ID ARM_OIDC_TOKEN_FILE_PATH=$CREDENTIALS/azure
fi
unset AWS_TOKEN GOOGLE_TOKEN AZURE_TOKEN
# shellcheck source=templates/pipelines/signals.sh
source "$TRAINYARD/templates/pipelines/signals.sh"
