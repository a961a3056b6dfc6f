#!/usr/bin/env bash
# What pipelines do with a cloud: OPERATION is `up`, `preview` or `drift`, STACK the stack, TRAINYARD the clone.
# PULUMI_BACKEND_URL is the state's place; SECRETS_PROVIDER the key that a new stack's secrets are encrypted by.
# TRAINYARD_ORGANISATION is the organisation's configuration of the policies, out of the reach of a pull request.
# The project's files are data: its program must be a template's, which program.py writes anew, and the package, the
# policies and this file are Trainyard's, at the commit that is pinned. The state is that of the project.
set -euo pipefail

: "${OPERATION:?up, preview or drift}" "${STACK:?the stack}" "${TRAINYARD:?the clone of Trainyard}"
: "${PULUMI_BACKEND_URL:?where the state is: s3://bucket?region=…, gs://bucket or azblob://container?storage_account=…}"
: "${TRAINYARD_STACKS:?the folder of the stack files}"
: "${TRAINYARD_ORGANISATION:?the organisation file, such as $TRAINYARD/templates/pipelines/organisation.json}"
backend=$PULUMI_BACKEND_URL
environment=$("$TRAINYARD/.venv/bin/trainyard" env --stack "$STACK")
eval "$environment"
export PULUMI_BACKEND_URL=$backend PYTHONSAFEPATH=1 TRAINYARD TRAINYARD_STACKS
export PATH="$TRAINYARD/templates/pipelines/bin:$PATH" # what kubeconfigs execute

if [ "${ARM_USE_OIDC:-}" = true ]; then # in place of the login of `az`, which cannot be renewed
  export AAD_LOGIN_METHOD=workloadidentity AAD_SERVICE_PRINCIPAL_CLIENT_ID=$ARM_CLIENT_ID
fi

settings=$(mktemp -d) # a copy: the engine writes the key's data beside what it reads
config=$settings/stacks/Pulumi.$STACK.yaml
mkdir "$settings/stacks"
"$TRAINYARD/.venv/bin/python" "$TRAINYARD/templates/pipelines/program.py" "$(dirname "$TRAINYARD_STACKS")" "$TRAINYARD" "$settings"
cp "$TRAINYARD_STACKS/Pulumi.$STACK.yaml" "$config"
cd "$settings"
common=(--stack "$STACK" --config-file "$config" --non-interactive
  --policy-pack "$TRAINYARD/policies" --policy-pack-config "$TRAINYARD_ORGANISATION")

select_stack() { pulumi stack select "$STACK"; }

# Changes nothing and takes no lock: rights to read are enough. A stack that is not made yet has nothing to compare with.
preview() {
  local text=$settings/preview.txt ended=0 what=passed said
  if ! said=$(select_stack 2>&1); then
    [[ $said == *"no stack named"* ]] || { echo "$said" >&2; return 1; }
    printf '### Preview of `%s`\n\nThe first `up` makes this stack: the rehearsal says what it makes.\n\n' "$STACK"
    return
  fi
  pulumi preview --color never --suppress-progress "${common[@]}" > "$text" 2>&1 || { ended=$? what=failed; }
  printf '### Preview of `%s`: %s\n\n~~~~~~~~\n' "$STACK" "$what"
  tail --bytes=40000 "$text" # a comment has 65,536 characters
  printf '\n~~~~~~~~\n\n'
  return "$ended"
}

case $OPERATION in
  up)
    select_stack || pulumi stack init "$STACK" ${SECRETS_PROVIDER:+--secrets-provider "$SECRETS_PROVIDER"}
    pulumi up --yes "${common[@]}"
    ;;
  preview) preview ;;
  drift)
    select_stack
    pulumi preview --refresh --expect-no-changes "${common[@]}"
    ;;
  *) echo "OPERATION: got $OPERATION; allowed: up, preview, drift" >&2; exit 2 ;;
esac
