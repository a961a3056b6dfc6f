#!/usr/bin/env bash
# A fake of `gh api`, whose comments or issues are the file `store` beside it. It needs jq, which `gh` has built in.
store=$(dirname "$0")/store changed=$(dirname "$0")/changed path='' filter='' fields=() set='.'
while shift && [ $# -gt 0 ]; do
  case $1 in
    repos/*) path=$1 ;;
    --jq) filter=$2 ;;
    body=@* ) fields+=(--rawfile body "${1#body=@}") set+=' | .body=$body' ;;
    title=*) fields+=(--arg title "${1#title=}") set+=' | .title=$title' ;;
    state=*) fields+=(--arg state "${1#state=}") set+=' | .state=$state' ;;
  esac
done
if [ -n "$filter" ]; then
  exec jq -r "map(select(.state == \"open\")) | $filter" "$store"
elif [[ $path =~ /[0-9]+$ ]]; then
  jq "${fields[@]}" "map(if .id == ${path##*/} then ($set) else . end)" "$store" > "$changed"
else
  jq "${fields[@]}" ". + [{id: (length + 100), number: (length + 100), state: \"open\", user: {login: \"github-actions[bot]\"}} | $set]" "$store" > "$changed"
fi
mv "$changed" "$store"
