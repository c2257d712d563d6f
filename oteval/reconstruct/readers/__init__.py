"""Parts of spans that several dialects share; see `oteval.messages` for the messages in them."""
