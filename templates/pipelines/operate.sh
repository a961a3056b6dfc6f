#!/usr/bin/env bash
# Runs a pipeline's operation on a stack: OPERATION is `up`, `preview` or `drift`, STACK the stack, TRAINYARD the clone.
# PULUMI_BACKEND_URL is the URL of the state; SECRETS_PROVIDER the key that encrypts a new stack's secrets.
# TRAINYARD_ORGANISATION is the organisation's configuration of the policies, which a pull request cannot change.
# The project's files are data only: program.py accepts and rewrites a template's program, and the package, the
# policies and this file are Trainyard's, at the pinned commit. The state is the project's.
set -euo pipefail

: "${OPERATION:?up, preview or drift}" "${STACK:?the stack}" "${TRAINYARD:?the clone of Trainyard}"
: "${PULUMI_BACKEND_URL:?where the state is: s3://bucket?region=…, gs://bucket or azblob://container?storage_account=…}"
: "${TRAINYARD_STACKS:?the folder of the stack files}"
: "${TRAINYARD_ORGANISATION:?the organisation file, such as $TRAINYARD/templates/pipelines/organisation.json}"
backend=$PULUMI_BACKEND_URL
environment=$("$TRAINYARD/.venv/bin/trainyard" stack env -s "$STACK")
eval "$environment"
export PULUMI_BACKEND_URL=$backend PYTHONSAFEPATH=1 TRAINYARD TRAINYARD_STACKS
export PATH="$TRAINYARD/templates/pipelines/bin:$PATH" # programs that kubeconfigs execute

if [ "${ARM_USE_OIDC:-}" = true ]; then # instead of the login of `az`, which cannot be renewed
  export AAD_LOGIN_METHOD=workloadidentity AAD_SERVICE_PRINCIPAL_CLIENT_ID=$ARM_CLIENT_ID
fi

settings=$(mktemp -d) # a copy: the engine writes the encrypted key into the config file
config=$settings/stacks/Pulumi.$STACK.yaml
mkdir "$settings/stacks"
"$TRAINYARD/.venv/bin/python" "$TRAINYARD/templates/pipelines/program.py" "$(dirname "$TRAINYARD_STACKS")" "$TRAINYARD" "$settings"
cp "$TRAINYARD_STACKS/Pulumi.$STACK.yaml" "$config"
cd "$settings"
common=(--stack "$STACK" --config-file "$config" --non-interactive
  --policy-pack "$TRAINYARD/policies" --policy-pack-config "$TRAINYARD_ORGANISATION")

select_stack() { pulumi stack select "$STACK"; }

# Changes nothing and takes no lock, so read permissions suffice. A stack that does not exist yet has no state.
preview() {
  local text=$settings/preview.txt ended=0 what=passed said
  if ! said=$(select_stack 2>&1); then
    [[ $said == *"no stack named"* ]] || { echo "$said" >&2; return 1; }
    printf '### Preview of `%s`\n\nThe first `up` creates this stack; the rehearsal lists its resources.\n\n' "$STACK"
    return
  fi
  pulumi preview --color never --suppress-progress "${common[@]}" > "$text" 2>&1 || { ended=$? what=failed; }
  printf '### Preview of `%s`: %s\n\n~~~~~~~~\n' "$STACK" "$what"
  tail --bytes=40000 "$text" # a comment may have 65,536 characters
  printf '\n~~~~~~~~\n\n'
  return "$ended"
}

case $OPERATION in
  up)
    select_stack || pulumi stack init "$STACK" ${SECRETS_PROVIDER:+--secrets-provider "$SECRETS_PROVIDER"}
    pulumi up --yes "${common[@]}" || {
      ended=$? # the engine evaluates policies over several resources only after an update that succeeds
      pulumi stack export --stack "$STACK" |
        PYTHONPATH=$TRAINYARD "$TRAINYARD/.venv/bin/python" -m policies.standing "$config" || true
      exit "$ended"
    }
    ;;
  preview) preview ;;
  drift)
    select_stack
    pulumi preview --refresh --expect-no-changes "${common[@]}"
    ;;
  *) echo "OPERATION: got $OPERATION; allowed: up, preview, drift" >&2; exit 2 ;;
esac
