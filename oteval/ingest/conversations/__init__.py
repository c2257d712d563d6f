"""Files of conversations to runs without spans.

- `message_lists` reads lists of messages in any form, and objects that contain one: chat logs,
  fine-tuning examples, LangSmith's datasets, ShareGPT.
- `tau_results` reads the results of tau-bench and tau2-bench, `atif` the Agent Trajectory
  Interchange Format, and `inspect_logs` the logs of Inspect.
- `claude_code` and `codex` read the session files of the coding agents, a run for each question.
- `conversation_file` recognises the documents of a file, and passes them to these modules.

A run has an id that follows from the file's content, so that loading a file again adds nothing.
"""
