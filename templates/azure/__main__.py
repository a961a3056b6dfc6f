"""${PROJECT}: the program is Trainyard's own; what is yours is in stacks/."""

from runpy import run_module

run_module("infra", run_name="__main__")
