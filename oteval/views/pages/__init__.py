"""The web pages: runs, their scores with reasons, spans, variants and comparisons, from a store.

`create_app` in `app` returns a Starlette application. Each page has a module with a function that
turns the store's values into the values of a page, a template in ``templates/`` that shows them,
and a route. Pages read; `actions`, `alerts` and `labels` write, by forms with a token.

Trace content is hostile: templates escape every text, control characters are made visible, the
Content-Security-Policy allows only the application's own style and script, and texts of more than a
few kilobytes are cut with a link to the whole.
"""
