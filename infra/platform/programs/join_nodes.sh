#!/bin/sh
# Starts a launcher on each node of a job and joins the nodes: join_nodes.sh (accelerate | deepspeed) [ARGUMENT …]
#
# Without these options either launcher assumes a single node, and each node trains alone. Our options come first, so
# that the command's own options override them. Accelerate joins ranks only with a distribution option, unless it
# detects several GPUs. DeepSpeed reads the number of nodes from a host file; with --no_ssh, started on each node, it
# does not resolve the names in the file.
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
