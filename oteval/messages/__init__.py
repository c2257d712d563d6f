"""Messages in the forms of all providers and libraries, read to `oteval.model.Message`.

There is one reader for every form, wherever the messages come from: spans, HTTP requests and
answers, callers of evaluators, files. `reader` reads lists of messages; `forms` knows the forms of
a message, `parts` those of its parts, and `body` makes messages of the parts.
"""
