"""Messages in the forms of all providers and libraries, read to `oteval.model.Message`.

There is one reader for every form, wherever the messages come from: spans, HTTP requests and
answers, callers of evaluators, files. `reader` reads lists of messages; `forms` reads the forms of
a message, `parts` the forms of its parts, and `body` makes messages of the parts. `direct` reads
the messages of callers, strictly, and `python_objects` turns libraries' objects into plain data.
`genai` writes the form of OpenTelemetry's conventions; `Message.as_dict` writes OpenAI's.

Messages have the ids of their source: the span that contains them, or none.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
