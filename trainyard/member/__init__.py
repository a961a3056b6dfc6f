"""Commands of team members, who have only the rights of their team.

Most modules are one command; the others are what several commands use. All reach the cluster with the
member's rights alone, by a context or a stack. `commands` defines the command line.
"""
