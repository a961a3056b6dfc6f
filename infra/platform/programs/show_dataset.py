#!/usr/bin/env python3
# Links a staged dataset into the folders of the teams that may read it, and removes it from all other teams' folders.
#
# Arguments: folder of datasets, folder of the teams' folders, dataset (NAME/VERSION), teams that may read it, all
# other teams.
import os
import shutil
import sys
from pathlib import Path

datasets, views = map(Path, sys.argv[1:3])
version, readers, others = sys.argv[3:]
for team in others.split():
    closed = (views / team / version).parent
    if closed.is_dir():
        shutil.rmtree(closed)
for team in readers.split():
    shown = views / team / version
    staged = shown.with_name(f"{shown.name}.part")
    if staged.is_dir():
        shutil.rmtree(staged)
    if not shown.is_dir():
        shutil.copytree(datasets / version, staged, symlinks=True, copy_function=os.link)
        staged.rename(shown)
