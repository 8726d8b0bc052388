"""The command `attnlab`.

`attnlab_command` is what pip installs. `arguments` has the parser, `subcommands` computes and
prints, `command` runs one.
"""
