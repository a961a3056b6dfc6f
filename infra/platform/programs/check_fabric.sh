#!/bin/sh
# postStart hook of a job's containers: ends ranks that would train over TCP on a pool with a fabric.
#
# The hook runs in the job's image, so it is POSIX sh and calls no other program. TRAINYARD_FABRIC has the fabric
# class and the network's needs in this container: `file=package` for a file of the image, `file=` for a file that the
# node provides, `locked-memory=bytes` for the memory that ranks must be able to lock (below it RDMA registers no
# buffers). Jobs of one node are not checked, nor jobs with NCCL_NET=Socket, which requests TCP.
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
  for found in $1; do [ -e "$found" ] && return 0; done
  return 1
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
    /*) one_of "$1" || under_prefix "${1#/}" ;;
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
  for process in $(first_processes); do
    while read -r one two three soft _; do
      [ "$one $two $three" = 'Max locked memory' ] || continue
      [ "$soft" = unlimited ] || [ "$soft" -ge "$1" ] || { locked=$soft; return 1; }
    done <"$process/limits"
  done
}
set -f
for need in ${TRAINYARD_FABRIC#* }; do
  file=${need%%=*} package=${need#*=}
  set +f
  case $file in
    locked-memory) may_lock "$package" || low="
  locked memory: the node allows $locked bytes, RDMA needs $package or more; the DaemonSet memory-lock raises the limit" ;;
    *) has "$file" || missing="${missing:-}
  $file: $why; ${package:+install the package }${package:-the node provides none to this pod}" ;;
  esac
done
case "$NCCL_NET ${NCCL_IB_DISABLE:-0} ${NCCL_NET_PLUGIN:-}" in
  'IB 0 '*) ;;
  'IB '*) missing="${missing:-}
  NCCL_IB_DISABLE=$NCCL_IB_DISABLE: turns the fabric off; remove it" ;;
  *' none') missing="${missing:-}
  NCCL_NET_PLUGIN=none: prevents NCCL from loading the plugin of $NCCL_NET; remove it" ;;
esac
[ "${missing:-}${low:-}" ] || exit 0
message="trainyard: ranks would train over TCP, on a pool with the fabric ${TRAINYARD_FABRIC%% *}:${missing:-}${low:-}
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
