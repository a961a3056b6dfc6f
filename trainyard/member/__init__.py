"""What a member of a team does with the team's jobs: see them, wait, pause, enter, take their records.

Each command is a module. All of them reach the cluster by a context and with the member's rights alone;
`commands` names them for the command line.
"""
