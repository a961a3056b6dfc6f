#!/usr/bin/env python3
# Runs a batch script of Slurm on a job's first node, whose `srun` starts tasks on all: run_sbatch.py SCRIPT [ARGUMENT …]
#
# The program is on the script's PATH as `srun` and `scontrol`. The other nodes ask the first one for work: a step's srun
# answers with its command and what the script has changed in the environment, and gets the exit code of the node's
# tasks; when the script has ended, its exit code is the answer. The first failed task ends its step, as by `srun -K`.
import contextlib, errno, getopt, json, os, pathlib, re, select, shlex, signal, socket, subprocess, sys, tempfile, time, zlib
PORT, POLL, EX_USAGE, EX_TEMPFAIL = int("@port@"), 0.1, 2, 75
FLAGS = ["label", "unbuffered", "exclusive", "exact", "overlap", "kill-on-bad-exit", "quiet", "verbose"]
IGNORED = ["cpus-per-task=", "cpu-bind=", "gpu-bind=", "gpus=", "gpus-per-node=", "gres=", "mem=", "mpi=", "export=", "time="]
READ = ["ntasks=", "nodes=", "ntasks-per-node=", "nodelist=", "gpus-per-task=", "chdir="]
got_sigterm = list[bool]()
def run_tasks(step, node, is_over):
    number, gpus = step["counts"].get(node, 0), step["gpus"]
    nodes = list(step["counts"])
    first = sum(step["counts"][each] for each in nodes[: nodes.index(node)]) if number else 0
    tasks = []
    for local in range(number):
        own = {"SLURM_NODEID": nodes.index(node), "SLURM_LOCALID": local, "SLURM_PROCID": first + local}
        if gpus:
            own["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(local * gpus, (local + 1) * gpus)))
        env = {**os.environ, **step["env"], **{name: str(value) for name, value in own.items()}}
        env["SLURMD_NODENAME"] = step["hosts"][nodes.index(node)]
        try:
            tasks.append(subprocess.Popen(step["command"], env=env, cwd=step["cwd"]))
        except OSError as error:  # as for all its tasks
            print(f"srun: {step['command'][0]}: {error}", file=sys.stderr)
            return EX_USAGE
    are_terminated, failed = False, 0
    while True:
        codes = [each.poll() for each in tasks]
        failed = failed or next(filter(None, codes), 0)
        if None not in codes:
            return failed if failed >= 0 else 128 - failed
        if not are_terminated and (got_sigterm or failed or is_over()):
            are_terminated = True
            for each in tasks:
                each.terminate()
        time.sleep(POLL)
def send(link, message):
    try:
        link.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        got_sigterm or print("srun: a node has gone", file=sys.stderr)
def is_readable(link):
    return bool(select.select([link], [], [], 0)[0])
def read(link):
    try:
        return json.loads(link.makefile().readline() or "null")
    except OSError:
        return None
def accepted(nodes):
    links = dict[int, socket.socket]()
    while nodes - links.keys() and not got_sigterm:
        try:  # another step may wait for its nodes
            both = socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if both else socket.AF_INET
            listener = socket.create_server(("", PORT), family=family, dualstack_ipv6=both)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            time.sleep(POLL)
            continue
        with listener:
            while nodes - links.keys() and not got_sigterm:
                if is_readable(listener) or time.sleep(POLL):
                    link = listener.accept()[0]
                    node = read(link)
                    links[node] = link
    return {node: link for node, link in links.items() if node in nodes}
def serve_steps(node):
    while not got_sigterm:
        try:
            link = socket.create_connection((os.environ["PET_MASTER_ADDR"], PORT))
        except OSError:
            time.sleep(POLL)
            continue
        with link:
            send(link, node)
            answer = read(link)
            if isinstance(answer, int):
                return answer
            if answer:
                answer["counts"] = {int(each): number for each, number in answer["counts"].items()}
                send(link, run_tasks(answer, node, lambda link=link: is_readable(link)))
    return EX_TEMPFAIL
def hosts():
    address = os.environ["PET_MASTER_ADDR"]
    return [re.sub(r"-0(\.|$)", rf"-{node}\1", address, count=1) for node in range(int(os.environ["PET_NNODES"]))]
def srun(words):
    words = [re.sub(r"^(--(?:exclusive|kill-on-bad-exit))=.*", r"\1", word) for word in words]
    found, command = getopt.getopt(words, "n:N:w:D:c:G:t:luKQv", [*READ, *FLAGS, *IGNORED])
    if not command:
        raise ValueError("a command to start is missing")
    asked, env = {key.lstrip("-"): value for key, value in found}, os.environ
    def value(*keys):
        return next((asked[key] for key in keys if key in asked), "")
    every = hosts()
    per_node = int(value("ntasks-per-node") or env.get("SLURM_NTASKS_PER_NODE") or 0)
    number = int(value("n", "ntasks") or 0)
    wanted = [every.index(each) for each in value("w", "nodelist").split(",") if each]
    count = int(value("N", "nodes").split("-")[0] or len(wanted) or min(len(every), number or len(every)))
    number = number or (per_node * count if per_node else count if wanted else int(env["SLURM_NTASKS"]))
    nodes = (wanted + [each for each in range(len(every)) if each not in wanted])[: min(count, number)]
    counts = {node: number // len(nodes) + (index < number % len(nodes)) for index, node in enumerate(nodes)}
    folder = pathlib.Path(sys.argv[0]).parent
    step_id = len(list(folder.glob("step.*")))
    (folder / f"step.{step_id}").touch()
    before = pathlib.Path(f"/proc/{env['TRAINYARD_SLURM']}/environ").read_text().split("\0")
    of_step = {"SLURM_STEP_ID": step_id, "SLURM_STEPID": step_id, "SLURM_NTASKS": number, "SLURM_NPROCS": number}
    of_step |= {"SLURM_STEP_NUM_TASKS": number, "SLURM_STEP_NUM_NODES": len(nodes), "SLURM_NNODES": len(nodes)}
    changed = {name: text for name, text in env.items() if f"{name}={text}" not in before}
    step = {
        "command": command, "counts": counts, "hosts": [every[node] for node in nodes],
        "cwd": value("D", "chdir") or str(pathlib.Path.cwd()),
        "gpus": int((value("gpus-per-task") or env.get("SLURM_GPUS_PER_TASK") or "0").split(":")[-1]),
        "env": {**changed, **{name: str(each) for name, each in of_step.items()}},
    }
    links, codes = accepted({*nodes} - {0}), {}
    for link in links.values():
        send(link, step)
    def has_failed():
        for node, link in links.items():
            if node not in codes and is_readable(link):
                code = read(link)
                codes[node] = 1 if code is None else code
        return any(codes.values())
    code = run_tasks(step, 0, has_failed)
    code = next(filter(None, codes.values()), code)  # of another node, before the first one's ended
    while links.keys() - codes.keys() and not (code or has_failed() or got_sigterm):
        time.sleep(POLL)
    return code or next(filter(None, codes.values()), 0)
def run_script(script, *words):
    folder, nodes = pathlib.Path(tempfile.mkdtemp()), hosts()
    for name in ("srun", "scontrol"):
        program = pathlib.Path("/proc/self/cmdline").read_text().split("\0")[2]
        (folder / name).write_text(f"#!{sys.executable}\n{program}")
        (folder / name).chmod(0o755)
    per_node = int(os.environ.get("SLURM_NTASKS_PER_NODE") or 1)
    number = int(os.environ.get("SLURM_NTASKS") or per_node * len(nodes))
    tasks = [number // len(nodes) + (node < number % len(nodes)) for node in range(len(nodes))]
    in_words = (f"{each}(x{tasks.count(each)})".removesuffix("(x1)") for each in dict.fromkeys(tasks))
    job = 10**7 + zlib.crc32(os.environ["TRAINYARD_RUN_DIR"].encode()) % (9 * 10**7)
    names = {
        "JOB_ID JOBID": job, "JOB_NUM_NODES NNODES": len(nodes), "JOB_NODELIST NODELIST": ",".join(nodes),
        "NTASKS NPROCS": number, "TASKS_PER_NODE": ",".join(in_words), "SUBMIT_DIR": pathlib.Path.cwd(),
        "GPUS_ON_NODE": os.environ.get("TRAINYARD_ACCELERATORS_PER_NODE", "0"), "NODEID PROCID LOCALID": 0,
        "JOB_NAME": os.environ.get("SLURM_JOB_NAME", script),
    }
    slurm = {f"SLURM_{name}": str(value) for each, value in names.items() for name in each.split()}
    path = f"{folder}:{os.environ['PATH']}"
    env = {**os.environ, **slurm, "SLURMD_NODENAME": nodes[0], "PATH": path, "TRAINYARD_SLURM": str(os.getpid())}
    started_by = shlex.split(pathlib.Path(script).read_text().splitlines()[0].removeprefix("#!"))
    batch, signalled = subprocess.Popen([*started_by, script, *words], env=env), set[str]()
    while batch.poll() is None:
        with contextlib.suppress(OSError):  # they may end meanwhile
            children = pathlib.Path(f"/proc/{batch.pid}/task/{batch.pid}/children").read_text().split()
            # Its steps save first: the shell would end before them.
            for each in {*(children or [str(batch.pid)])} - signalled if got_sigterm else ():
                signalled.add(each)
                os.kill(int(each), signal.SIGTERM)
        time.sleep(POLL)
    if got_sigterm:
        return EX_TEMPFAIL
    code = batch.returncode if batch.returncode >= 0 else 128 - batch.returncode
    for link in accepted({*range(1, len(nodes))}).values():
        send(link, code)
    return code
signal.signal(signal.SIGTERM, lambda *_: got_sigterm.append(True))
name, words = pathlib.Path(sys.argv[0]).name, sys.argv[1:]
if name == "scontrol":
    if words[:2] != ["show", "hostnames"]:
        sys.exit(f"scontrol {' '.join(words)}: only `scontrol show hostnames` is here")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    print("\n".join((words[2:] or [os.environ["SLURM_JOB_NODELIST"]])[0].split(",")))
elif name == "srun":
    try:
        sys.exit(srun(words))
    except (getopt.GetoptError, ValueError) as error:
        sys.exit(f"srun: {error}")
else:
    node = int(os.environ["PET_NODE_RANK"])
    sys.exit(serve_steps(node) if node else run_script(*words))
