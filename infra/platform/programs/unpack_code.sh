#!/bin/sh
# Unpacks a job's code, then runs a command in its folder: unpack_code.sh STORE FOLDER COMMAND [ARGUMENT …]
#
# The program runs in the ranks' container before any rank starts: a separate container costs each pod about a second.
# TRAINYARD_CODE is the code's digest; without it the command starts in the current folder. Distributions' images have
# gzip, tar and sha256sum, which take 0.15 s for 5,000 files; Python's tarfile takes 0.75 s. Images that lack one of
# them use Python (unpack_code.py): UBI minimal has no tar. The pack is copied first, so that the unpacked bytes are
# the verified ones. All files become read-only (0444, 0555): their owner is the ranks' user, and ranks must not change
# their code by accident. Files get the time of the start (-m), since a pack holds no times, and archives that programs
# make of their code cannot have times before 1980.
store=$1 folder=$2
shift 2
[ "${TRAINYARD_CODE:-}" ] || exec "$@"
digest=${TRAINYARD_CODE#sha256:}
file=$store/$digest.tar.gz copy=$folder.tar
line='
'
by_python='@by_python@'
refuse() {
  text="trainyard: code sha256:$digest: $1"
  echo "$text" >&2
  echo "$text" 2>/dev/null >"${TERMINATION_LOG:-/dev/termination-log}"
  rm -rf "$folder" "$copy"
  exit 2
}
failed() { # only the first line of what a program says: tar has one for each file
  case $2 in
    *'No space left'*) refuse "its files fill the volume that they are unpacked on (1 GiB, the pack with them): bring fewer" ;;
  esac
  said=${2#"$line"} # gzip begins with an empty one
  refuse "$1: ${said%%"$line"*}"
}
missing='' python=$(command -v python3 || command -v python)
for tool in gzip tar sha256sum; do
  command -v "$tool" >/dev/null || missing="${missing:+$missing, }$tool"
done
[ -z "$missing" ] || [ "$python" ] || refuse "the image has no $missing and no Python, one of which unpacks it; put it there, or bake the code in (--no-folder)"
[ -e "$file" ] || refuse "not in the team's store; \`trainyard run\` puts it there"
umask 022
[ ! -e "$folder" ] || { chmod -R u+w "$folder" && rm -rf "$folder"; } # of a start that was cut off
mkdir "$folder" 2>/dev/null || refuse "no folder $folder can be made: the runtime is of an earlier version; bring the stack up again"
if [ "$missing" ]; then
  said=$("$python" -I -c "$by_python" "$file" "$folder" "$digest" 2>&1) || refuse "${said##*"$line"}"
else
  said=$(gzip -dc "$file" 2>&1 >"$copy") || failed "cannot be read" "$said"
  found=$(sha256sum <"$copy") found=${found%% *}
  [ "$found" = "$digest" ] || refuse "the store has other bytes by that name, sha256:$found"
  said=$(tar -xmf "$copy" -C "$folder" 2>&1) || failed "cannot be unpacked" "$said"
  rm "$copy"
fi
chmod -R a-w "$folder"
cd "$folder" && exec "$@"
