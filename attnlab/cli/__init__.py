"""The command `attnlab`.

pip installs `attnlab_command` as the command. `arguments` has the parser, `subcommands` computes
and prints, and `command` runs one subcommand.
"""
