"""The command `attnlab`: for people, and with `--json` for programs, as `cli.schema.json` says.

`arguments` says what can be typed, `subcommands` what each subcommand computes, `command` runs one
and prints its report.
"""
