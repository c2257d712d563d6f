"""Readers that the dialects share: from an attribute's value to messages.

An attribute's text goes through `values.parse`. `messages.from_messages` makes messages of the
parsed value, whichever provider or library it comes from: `message_forms` knows the forms of a
message, `parts` the forms of a part of one. `spans` has the small things that every dialect needs:
token usage, errors, and the gaps of content that is missing.

The others read one source each: `langchain`, `provider_calls` (requests and responses of model
clients), `gemini`, `bedrock`, `openinference_flat`, `openinference_raw` and `python_reprs`.
"""
