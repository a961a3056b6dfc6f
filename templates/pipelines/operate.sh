#!/usr/bin/env bash
# What pipelines do with a cloud: OPERATION is `up` or `drift`, STACK the stack, TRAINYARD the clone.
# PULUMI_BACKEND_URL is the state's place; SECRETS_PROVIDER the key that a new stack's secrets are encrypted by.
# TRAINYARD_ORGANISATION is the organisation's configuration of the policies, out of the reach of a pull request.
set -euo pipefail

: "${OPERATION:?up or drift}" "${STACK:?the stack}" "${TRAINYARD:?the clone of Trainyard}"
: "${PULUMI_BACKEND_URL:?where the state is: s3://bucket?region=… or gs://bucket}"
: "${TRAINYARD_STACKS:?the folder of the stack files}"
backend=$PULUMI_BACKEND_URL
environment=$("$TRAINYARD/.venv/bin/trainyard" env --stack "$STACK")
eval "$environment"
export PULUMI_BACKEND_URL=$backend PYTHONSAFEPATH=1

cd "$TRAINYARD"
settings=$(mktemp -d) # a copy: the engine writes the key's data beside what it reads
config=$settings/stacks/Pulumi.$STACK.yaml
mkdir "$settings/stacks"
cp Pulumi.yaml "$settings"
cp "$TRAINYARD_STACKS/Pulumi.$STACK.yaml" "$config"
pulumi -C "$settings" stack select "$STACK" ||
  pulumi -C "$settings" stack init "$STACK" ${SECRETS_PROVIDER:+--secrets-provider "$SECRETS_PROVIDER"}
common=(--stack "$STACK" --config-file "$config" --non-interactive --policy-pack "$TRAINYARD/policies"
  ${TRAINYARD_ORGANISATION:+--policy-pack-config "$TRAINYARD_ORGANISATION"})

case $OPERATION in
  up) pulumi up --yes "${common[@]}" ;;
  drift) pulumi preview --refresh --expect-no-changes "${common[@]}" ;;
  *) echo "OPERATION: got $OPERATION; allowed: up, drift" >&2; exit 2 ;;
esac
