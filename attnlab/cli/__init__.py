"""The command `attnlab`; `cli.schema.json` describes its `--json` output.

`arguments` has the parser, `subcommands` computes a report, `command` prints it.
"""
