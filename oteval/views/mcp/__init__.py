"""``oteval mcp``: an MCP server with which agents that write code look at runs and act on them.

The tools are few. `list_runs` with an outcome shows the runs that fail with the reasons,
`diff_runs` where one first diverges from its reference, and `show_run` and `explain_run` the
rest. Tools that write are only offered with ``--write``.

**Content of traces is hostile.** It is returned in blocks (`results`) that it cannot close, under a
line that calls it data. Everything outside a block is written by oteval. Results have
no structured content, because clients show that to models without the block.

**Results are bounded.** A result has about 24,000 characters at most, whatever the traces hold;
arguments continue where it ended.

**The database is open during a call only**, so that other commands can use it between calls. A
running ``oteval serve`` is asked instead.
"""
