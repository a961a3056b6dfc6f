#!/usr/bin/env bash
# Runs a pipeline's operation on a stack: OPERATION is `up`, `preview`, `drift` or `unlock`, STACK the stack, TRAINYARD
# the clone. PULUMI_BACKEND_URL is the URL of the state, SECRETS_PROVIDER the key that encrypts the stack's secrets.
# PLAN is the file of a preview's operations, which `preview` writes and to which `up` is limited.
# TRAINYARD_FIRST_UP is the name of a stack that does not exist yet and that `up` is to create.
# TRAINYARD_ORGANISATION is the organisation's configuration of the policies, which a pull request cannot change.
# The project's files are data only: program.py accepts and rewrites a template's program, and the package, the
# policies and this file are Trainyard's, at the pinned commit. The state is the project's.
set -euo pipefail

: "${OPERATION:?up, preview, drift or unlock}" "${STACK:?the stack}" "${TRAINYARD:?the clone of Trainyard}"
: "${PULUMI_BACKEND_URL:?where the state is: s3://bucket?region=…, gs://bucket or azblob://container?storage_account=…}"
: "${TRAINYARD_STACKS:?the folder of the stack files}"
: "${TRAINYARD_ORGANISATION:?the organisation file, such as $TRAINYARD/templates/pipelines/organisation.json}"
backend=$PULUMI_BACKEND_URL
case $OPERATION$backend in
  upfile://*) ;;
  up*) # without a key each runner would encrypt with a passphrase of its own, which no other runner can decrypt
    [ -n "${PULUMI_CONFIG_PASSPHRASE:-}${PULUMI_CONFIG_PASSPHRASE_FILE:-}" ] ||
      : "${SECRETS_PROVIDER:?the key of the secrets, awskms://…, gcpkms://… or azurekeyvault://…, as \`trainyard stack state-bucket\` prints it}"
    ;;
esac
# shellcheck source=templates/pipelines/signals.sh
source "$TRAINYARD/templates/pipelines/signals.sh"
environment=$("$TRAINYARD/.venv/bin/trainyard" stack env -s "$STACK")
eval "$environment"
export PULUMI_BACKEND_URL=$backend PYTHONSAFEPATH=1 TRAINYARD TRAINYARD_STACKS
export PATH="$TRAINYARD/templates/pipelines/bin:$PATH" # programs that kubeconfigs execute

if [ "${ARM_USE_OIDC:-}" = true ]; then # instead of the login of `az`, which cannot be renewed
  export AAD_LOGIN_METHOD=workloadidentity AAD_SERVICE_PRINCIPAL_CLIENT_ID=$ARM_CLIENT_ID
fi

settings=$(mktemp -d) # a copy: the engine writes the encrypted key into the config file
[ -z "${PLAN:-}" ] || PLAN=$(realpath -m "$PLAN")
config=$settings/stacks/Pulumi.$STACK.yaml
mkdir "$settings/stacks"
PYTHONPATH=$TRAINYARD "$TRAINYARD/.venv/bin/python" "$TRAINYARD/templates/pipelines/program.py" \
  "$(dirname "$TRAINYARD_STACKS")" "$TRAINYARD" "$settings" "$TRAINYARD_STACKS/Pulumi.$STACK.yaml"
cp "$TRAINYARD_STACKS/Pulumi.$STACK.yaml" "$config"
find -L "$TRAINYARD_STACKS" -mindepth 1 -maxdepth 1 -type d -exec ln -s {} "$settings/stacks" \; # of team files
cd "$settings"
common=(--stack "$STACK" --config-file "$config" --non-interactive
  --policy-pack "$TRAINYARD/policies" --policy-pack-config "$TRAINYARD_ORGANISATION")

# Whether the stack exists. An answer other than "no stack", such as a denied read, ends the operation.
stack_exists() {
  local said
  said=$(pulumi stack select "$STACK" 2>&1) && return
  [[ $said == *"no stack named"* ]] && return 1
  echo "$said" >&2
  exit 1
}

run_url() { # of this run, for the run that finds its lock
  local github=${GITHUB_RUN_ID:+$GITHUB_SERVER_URL/$GITHUB_REPOSITORY/actions/runs/$GITHUB_RUN_ID/attempts/$GITHUB_RUN_ATTEMPT}
  echo "${github:-${CI_JOB_URL:-${BUILD_URL:-unknown}}}"
}

report() { PYTHONPATH=$TRAINYARD LINK=$(run_url) "$TRAINYARD/.venv/bin/python" "$TRAINYARD/templates/pipelines/report.py" "$@"; }

preview_operations() { # EVENTS OPTION…
  PULUMI_DEBUG_COMMANDS=true forward pulumi preview --suppress-progress --event-log "$1" "${common[@]}" "${@:2}"
}

# Prints the report, and writes the whole text and the operations beside each other: $PLAN.txt, $PLAN.
# Changes nothing and takes no lock, so read permissions suffice. A stack that does not exist yet has no state.
preview() {
  local plan=${PLAN:-$settings/plan.json}
  mkdir -p "$(dirname "$plan")"
  if ! stack_exists; then
    printf 'The first `up` creates the stack `%s`.\n\n' "$STACK"
    mkdir "$settings/none"
    export PULUMI_BACKEND_URL=file://$settings/none
    pulumi stack init "$STACK" --secrets-provider passphrase > /dev/null
  fi
  report_of Preview "$plan"
}

report_of() { # TITLE PLAN OPTION…
  local ended=0
  preview_operations "$settings/events" --color never "${@:3}" > "$2.txt" 2>&1 || ended=$?
  report whole "$1" "$settings/events" "$2.txt" "$2" "$ended"
  [ -z "${GITHUB_RUN_ID:-}" ] || report annotate "${TRAINYARD_POLICY_REPORTS:-.}/policies.sarif" "stacks/Pulumi.$STACK.yaml"
  return "$ended"
}

unlock() { TRAINYARD_STACKS=$settings/stacks "$TRAINYARD/.venv/bin/trainyard" stack unlock -s "$STACK" "$@"; }

up() {
  : "${PLAN:?the file of the operations that were approved, which \`preview\` has written}"
  if ! stack_exists; then
    [ "${TRAINYARD_FIRST_UP:-}" = "$STACK" ] || {
      printf '%s\n  got:     %s\n  allowed: %s\n  fix:     %s\n' "stack $STACK" "no such stack in $backend" \
        "a stack that exists" "correct PULUMI_BACKEND_URL; if this is its first up, set TRAINYARD_FIRST_UP=$STACK" >&2
      return 2
    }
    pulumi stack init "$STACK" ${SECRETS_PROVIDER:+--secrets-provider "$SECRETS_PROVIDER"}
  fi
  unlock --show # ends here with the holder's run if the stack is locked
  preview_operations "$settings/events"
  report compare "$PLAN" "$settings/events" # ends here if the plan lacks an operation
  pulumi stack tag set trainyard:run "$(run_url) $(uname -n)"
  forward pulumi up --yes --skip-preview "${common[@]}" || {
    local ended=$? # the engine evaluates policies over several resources only after an update that succeeds
    pulumi stack export --stack "$STACK" |
      PYTHONPATH=$TRAINYARD "$TRAINYARD/.venv/bin/python" -m policies.standing "$config" || true
    return "$ended"
  }
}

case $OPERATION in
  up) up ;;
  preview) preview ;;
  unlock) unlock ;;
  drift)
    stack_exists || { echo "stack $STACK: no such stack in $backend" >&2; exit 2; }
    report_of Drift "$settings/drift.json" --refresh --expect-no-changes
    ;;
  *) echo "OPERATION: got $OPERATION; allowed: up, preview, drift, unlock" >&2; exit 2 ;;
esac
