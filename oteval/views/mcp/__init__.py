"""``oteval mcp``: an MCP server that lets coding agents look at runs and act on them.

There are few tools. `list_runs` with an outcome shows the failing runs with the reasons.
`diff_runs` shows where a run first diverges from its reference. `show_run` and `explain_run` show
the rest. Tools that write are only offered with ``--write``.

**Content of traces is hostile.** It is returned in blocks (`results`) that it cannot close, under a
line that calls it data. Everything outside a block is written by oteval. Results have no structured
content, because clients show structured content to models without the block.

**Results are bounded.** A result has about 24,000 characters at most, whatever the traces hold; the
arguments of a further call continue where it ended.

**The database is open during a call only**, so that other commands can use it between calls. If
``oteval serve`` is running, the calls use that server instead.
"""
