"""Trains boosted trees with XGBoost on all ranks of a job.

XGBoost's ranks connect to a tracker, which rank 0 starts. The training image lacks XGBoost, so the folder
`vendor` has it.
"""

import os
import socket
import sys
from pathlib import Path

sys.path.append("vendor")

import xgboost
from sklearn.datasets import load_digits
from xgboost import collective
from xgboost.tracker import RabitTracker

PORT = 29600

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = socket.gethostbyname(os.environ["MASTER_ADDR"])
if rank == 0:
    tracker = RabitTracker(n_workers=world, host_ip=address, port=PORT)
    tracker.start()
place = {"dmlc_tracker_uri": address, "dmlc_tracker_port": PORT, "dmlc_task_id": str(rank)}
with collective.CommunicatorContext(**place, dmlc_retry=30):
    images, digits = load_digits(return_X_y=True)
    shard = xgboost.DMatrix(images[rank::world], label=digits[rank::world])
    settings = {"objective": "multi:softmax", "num_class": 10, "max_depth": 4, "nthread": 1}
    watched = {"evals": [(shard, "train")], "verbose_eval": rank == 0}
    trees = xgboost.train(settings, shard, num_boost_round=20, **watched)
    if rank == 0:
        folder = Path(os.environ["TRAINYARD_RUN_DIR"])
        folder.mkdir(parents=True, exist_ok=True)
        trees.save_model(folder / "trees.json")
        print(f"{trees.num_boosted_rounds()} rounds on {world} ranks", flush=True)
if rank == 0:
    tracker.wait_for()
