"""The command `attnlab`.

`arguments` has the parser, `subcommands` computes and prints, `command` runs one.
"""
