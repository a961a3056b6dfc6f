"""Commands of team members, who have only the rights of their team.

Most modules are one command; the others are shared by several commands. All access the cluster with the
member's rights only, by a context or a stack. `commands` defines the command line.
"""
