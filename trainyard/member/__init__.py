"""Commands of team members, who have only the rights of their team.

Each command is a module. All of them reach the cluster by a context and with the member's rights alone;
`commands` names them for the command line.
"""
