#!/bin/sh
# postStart hook of a job's containers: ends ranks that would leave the fabric of their pool, or use a part of it.
#
# The hook runs in the job's image, so it is POSIX sh and calls no other program. TRAINYARD_FABRIC has the fabric
# class and the network's needs in this container: `file=package` for a file of the image, `pattern=number` for files
# that the node provides, `env:NAME=value` and `env:NAME!=value` for variables that must not be so, and `locked-memory`
# where RDMA pins buffers: up to the node's memory; `nccl:` is for ranks (trainyard_train). Jobs of one node are not
# checked, nor jobs with NCCL_NET=Socket, which requests TCP.
# The loader looks up libraries as NCCL does (LD_PRELOAD). A static or musl loader prints nothing, which counts as
# found. Folders beside the programs of PATH count too: conda's Python finds its libraries there.
# The kubelet's event has no reason (FailedPostStartHook: "PostStartHook failed"), so the message goes to the job's log
# and to the termination message. Then signal $1 ends the container's first process, whose parent is outside of the
# pod, with an exit status that no other fault has. If only the lock limit is too low, the signal is $1 - 1, which
# restarts the pod: the limit of a new node follows soon (DaemonSet memory-lock).
case "${TRAINYARD_FABRIC:-tcp} ${PET_NNODES:-} ${NCCL_NET:-}" in
  'tcp '* | *' 1 '* | *' '[Ss][Oo][Cc][Kk][Ee][Tt]) exit 0 ;;
esac
prefixes=$(IFS=:; for folder in $PATH; do printf '%s ' "${folder%/*}"; done)
one_of() {
  number=0
  for found in $1; do [ ! -e "$found" ] || number=$((number + 1)); done
  [ "$number" -ge "${wanted:-1}" ]
}
under_prefix() {
  for prefix in $prefixes; do one_of "$prefix/$1" && return 0; done
  return 1
}
library() {
  answer=$(LD_PRELOAD=$1 /bin/sh -c : 2>&1)
  case $answer in
    '' | *'libraries: libcu'*) libraries="${libraries:-} $1" ;; # CUDA's comes with Python's packages
    *'('*) why=${answer#*\(} why=${why%%)*}; under_prefix "lib*/$1" ;;
    *) why=${answer##*libraries: }; return 1 ;;
  esac
}
beside_library() {
  # shellcheck disable=SC2016
  folders=$(LD_PRELOAD=${libraries:-} /bin/sh -c 'while read -r _ _ _ _ _ path; do
    case $path in */lib*.so*) echo "${path%/*}" ;; esac; done </proc/self/maps')
  [ "$folders" ] || return 0
  for folder in $folders; do one_of "$folder/$1" && return 0; done
  under_prefix "lib*/$1"
}
has() {
  why='missing'
  case $1 in
    /*) one_of "$1" || { got=$number; under_prefix "${1#/}"; } ;;
    */*) beside_library "$1" ;;
    *) library "$1" ;;
  esac
}
first_processes() {
  for process in /proc/[0-9]*; do
    [ "$process/ns/mnt" -ef /proc/self/ns/mnt ] && [ "${process#/proc/}" != $$ ] || continue
    read -r _ _ _ parent _ <"$process/stat"
    [ "$parent" != 0 ] || echo "$process"
  done
}
may_lock() {
  read -r _ kilobytes _ </proc/meminfo
  for process in $(first_processes); do
    while read -r one two three soft _; do
      [ "$one $two $three" = 'Max locked memory' ] || continue
      [ "$soft" = unlimited ] || [ "$((soft / 1024))" -ge "$kilobytes" ] || { locked=$soft; return 1; }
    done <"$process/limits"
  done
}
leaves() {
  name=${1%%[!A-Z0-9_]*} rule=${1#"${1%%[!A-Z0-9_]*}"}
  eval "value=\${$name-}"
  case $rule in
    "=$value") ;;
    =* | "!=$value") return 1 ;;
    *) [ "$value" ] ;;
  esac
}
set -f
for need in ${TRAINYARD_FABRIC#* }; do
  file=${need%%=*} package=${need#*=} got=0 wanted=
  set +f
  case $need in
    nccl:*) ;;
    locked-memory) may_lock || low="
  locked memory: the node allows $locked bytes, RDMA needs all of its memory; the DaemonSet memory-lock raises the limit" ;;
    env:*) ! leaves "${need#env:}" || missing="${missing:-}
  $name=$value: turns the fabric off, or a part of it; remove it" ;;
    *=[0-9]*) wanted=$package; has "$file" || missing="${missing:-}
  $file: $why; the node provides $got of $wanted to this pod" ;;
    *) has "$file" || missing="${missing:-}
  $file: $why; install the package $package" ;;
  esac
done
[ "${missing:-}${low:-}" ] || exit 0
message="trainyard: ranks would leave the fabric ${TRAINYARD_FABRIC%% *} of their pool, or use a part of it:${missing:-}${low:-}
Add missing files to the image (training/images has all of them; \`trainyard stack images --check\` checks an image). If TCP
is intended, set NCCL_NET=Socket in the job's variables; if this check is wrong, set TRAINYARD_FABRIC=none there."
echo "$message" >&2
[ "${1:-}" ] || exit 1
echo "$message" 2>/dev/null >/dev/termination-log
signal=$1
[ "${missing:-}" ] || signal=$((signal - 1))
for process in $(first_processes); do
  echo "$message" 2>/dev/null >"$process/fd/2"
  kill "-$signal" "${process#/proc/}"
done
exit 1
