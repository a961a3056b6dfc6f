#!/bin/sh
# Starts a launcher on each node of a job, so that all join one training: join_nodes.sh (accelerate | deepspeed) [ARGUMENT …]
#
# Started by itself, either one takes its node for all there are, and each node trains alone. The words come first: what
# the job's own command says after them counts. Accelerate starts ranks that join others only where it is told of a
# way, unless it sees several GPUs. DeepSpeed takes the number of nodes from a file of hosts, and needs no names of them
# where it is started on each (--no_ssh).
launcher=$1
shift
case $launcher in
  *accelerate)
    [ "$1" = launch ] || exec "$launcher" "$@"
    shift
    way=--multi_gpu
    for word in "$@"; do
      case $word in
        *.py | -m | --module | --no[_-]python) break ;; # what follows is for the program
        --multi[_-]gpu | --cpu | --tpu | --use[_-]deepspeed | --use[_-]fsdp | --use[_-]megatron[_-]lm) way='' ;;
        --config[_-]file*) way='' ;;
      esac
    done
    exec "$launcher" launch ${way:+"$way"} --num_machines="$PET_NNODES" --machine_rank="$PET_NODE_RANK" \
      --num_processes="$((PET_NNODES * PET_NPROC_PER_NODE))" \
      --main_process_ip="$PET_MASTER_ADDR" --main_process_port="$PET_MASTER_PORT" "$@"
    ;;
esac
hosts=$(mktemp) || exit # without the file each node would train alone
node=0
while [ "$node" -lt "$PET_NNODES" ]; do
  echo "node-$node slots=$PET_NPROC_PER_NODE"
  node=$((node + 1))
done >"$hosts"
exec "$launcher" --hostfile="$hosts" --no_ssh --node_rank="$PET_NODE_RANK" \
  --master_addr="$PET_MASTER_ADDR" --master_port="$PET_MASTER_PORT" "$@"
