r"""Secrets by their names in text that is not JSON: assignments, markup, commands and sentences.

Such text is a whole body, or content: a file that a tool has read, the environment that it has
printed, a traceback. Inside JSON it is escaped: a line begins after ``\n``, and a quote is ``\"``.

    OPENAI_API_KEY=...    password: ...    api_key = "..."    os.environ["TOKEN"] = "..."
    <password>...    <add key="ApiKey" value="..."/>    name: TOKEN / value: ...
    --api-key ...    curl -u user:...    sshpass -p ...    setenv("DB_PASSWORD", "...")
    login ann password ...    the password is ...    host:5432:db:ann:...    echo ... | chpasswd

Each form is a pattern for the text up to the value. The same names are used in prose and in code
("the password: is required", ``password: str``), so a value without quotes must look like a secret.
There are three exceptions: the value follows the name of a variable of an environment, it follows
an option that takes nothing else, or it is alone with its name on a line of a plain text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ..patterns import Pattern
from .secret_names import NAME_ENDS, secret_kind
from .secret_values import is_plausible
from .text_edits import spans_in
from .text_values import (
    GAP,
    QUOTE,
    TextValue,
    bare_value,
    cookie_value,
    is_secret_text,
    text_value,
)

__all__ = ["OTHER_FORMS", "TEXT_TAILS", "text_spans"]

_LONGEST_NAME = 64
_NAME_LETTER = re.compile(r"[\w.$-]")
_NAME = re.compile(r"[\w.$-]+(?: [kK]ey| de passe)?")
_NAMED_BY = re.compile(
    rf"(?:key|name|variable)(?:{QUOTE})?{GAP}[:=]?{GAP}(?:{QUOTE})?[\w/.-]*\Z", re.IGNORECASE
)
_JSON_KEY = re.compile(r'"[ \t]*:\Z')
_LINE_START = re.compile(
    r"(?:^|[\r\n]|\\[rn])[ \t]*(?:-[ \t]+)?(?:export[ \t]+|set[ \t]+|ENV[ \t]+)?\Z"
)
_LINE_END = re.compile(r"[ \t;]*(?:$|[\r\n]|\\[rn])")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]+")
_SCHEMES = re.compile(r"(?i)(?:apikey|basic|bearer|digest|key|negotiate|token)[ \t]+")
_ELEMENT_TEXT = re.compile(rf"{GAP}(?:<!\[CDATA\[)?{GAP}([^<>\s\\][^<>]*?)(?={GAP}(?:\]\]>|<))")
_ELEMENT_END = re.compile(rf"{GAP}(?:\]\]>|</)")
_VALUE_BEFORE = re.compile(
    rf"(?i)value(?:{QUOTE})?{GAP}[:=]{GAP}(?:{QUOTE})?([^\"'\\\s,]{{6,1024}})(?:{QUOTE})?"
    rf"{GAP},?{GAP}(?:{QUOTE})?\Z"
)
_NAME_AT_END = re.compile(rf"([\w.-]+)(?:{QUOTE}|\s|\\+n)?\Z")
_USER_END = re.compile(r"[:%]")
_BEFORE_VALUE = re.compile(r".*(?:[\s|>→]|\\n)", re.DOTALL)
_VERBS = frozenset(("is", "was", "to", "est", "ist", "lautet"))
_SHORTEST_DIRECT = 12
_ASSIGNMENT = re.compile(r"\w[=:][^=]")
_ECHO = re.compile(r"(?:echo|printf)[ \t]+(?:-[a-zA-Z]+[ \t]+)?(?:['\"]%s[^'\"]*['\"][ \t]+)?")
_USER_BEFORE = re.compile(r"[^:\s]*:")
_JSON_START = re.compile(r"\s*(?:[\[{]|(?:data|event):)")
_STRING_END = re.compile(r"(?<!\\)\"\s*(?:[:}\]]|,\s*[^\"\s])")
# The text before the name of a program that is run, not mentioned in a sentence.
_COMMAND_START = re.compile(
    r"(?:^|[\r\n|;&(\"'`\[=>$#%:/]|\\+[nrt]|--|\b(?:sudo|exec|run|time|env|xargs|RUN|CMD))[ \t]*\Z"
)
_LONGEST_PAIR = 1400

# Between the words of a command, even if they are a list of texts.
_SEPARATOR = rf"(?:[ \t]+|{QUOTE},[ \t]*{QUOTE})"
_ARGUMENT = rf"[^\s\"'`\\,]+{_SEPARATOR}"
_WORDS = r"(?:[^\r\n|;&\\]|&[^\r\n|;&\\]|\\+[^nr\\])*?"
_COMMAND = rf"\b{_WORDS}"
# In JSON, the end of the line before is an escape whose letter touches the word.
_WORD_START = r"(?:\\[nrt]|\b)"
_LOGIN = f"(?:docker|podman|nerdctl|buildah|skopeo|registry|oras|acr|oc|az){_SEPARATOR}login"
# Options that take a password and nothing else, by their programs.
_PASSWORDS = (
    (rf"sshpass|{_LOGIN}", f"-p(?:{_SEPARATOR}|=)?"),
    ("mysql[a-z]*|mariadb[a-z-]*|7z[a-z]?", "-p"),
    ("mongo[a-z]*|cqlsh", f"-p{_SEPARATOR}"),
    ("redis-cli", f"-a{_SEPARATOR}"),
    ("ldap[a-z]+|security", f"-w{_SEPARATOR}"),
    ("sqlcmd|bcp|unzip|zip", f"-P(?:{_SEPARATOR})?"),
    ("ipmitool", f"-P{_SEPARATOR}"),
    ("openssl", f"(?:-pass(?:in|out)?{_SEPARATOR}pass:|-k{_SEPARATOR})"),
    ("htpasswd", f"-[a-zA-Z]*b[a-zA-Z]*{_SEPARATOR}{_ARGUMENT}{_ARGUMENT}"),
    ("ssh-keygen", f"-[NP]{_SEPARATOR}"),
    ("psexec|plink|pscp", f"-pw?{_SEPARATOR}"),
    ("lftp", rf"-u{_SEPARATOR}[^\s,]+,"),
    ("wpa_passphrase", _ARGUMENT),
    ("curl", rf"-b(?:{_SEPARATOR}|=)?(?:{QUOTE})?[\w.-]+="),
    (f"vault{_SEPARATOR}login", ""),
    (
        f"(?:kubectl|oc|k){_SEPARATOR}create{_SEPARATOR}secret",
        rf"--from-literal(?:{_SEPARATOR}|=)[\w.-]+=",
    ),
    ("rabbitmqctl", f"(?:add_user|change_password){_SEPARATOR}{_ARGUMENT}"),
)
# Options that take a user and a password.
_USERS = (
    ("curl", f"(?:-u|--user|--proxy-user|-U)(?:{_SEPARATOR}|=)?(?:{QUOTE})?"),
    (r"https?|xh", f"(?:-a|--auth)(?:{_SEPARATOR}|=)(?:{QUOTE})?"),
    ("smbclient|rpcclient", f"-U(?:{_SEPARATOR}|=)(?:{QUOTE})?"),
)


def _commands(options: tuple[tuple[str, str], ...]) -> str:
    return "|".join(
        rf"{_WORD_START}(?:{programs})(?:{_SEPARATOR}{_WORDS})?{_SEPARATOR}{option}"
        for programs, option in options
    )


class _NamedForm(NamedTuple):
    """A form of text with a secret.

    Attributes:
        pattern: The text from the last words of the name, or from the command, to the value.
        span: Returns the place of the value; its arguments are the text, the place of the match,
            and whether the text is plain as a whole.
        is_command: Whether it is a command, of any length.
    """

    pattern: str
    span: Callable[[str, int, int, bool], TextValue | None]
    is_command: bool = False


def text_spans(
    text: str, stretches: Sequence[tuple[int, int]], *, is_plain: bool = False
) -> Iterator[tuple[int, int]]:
    """Yield the places of values that a text names as secrets.

    Args:
        text: The text, also JSON with such text in its strings.
        stretches: Where names may be.
        is_plain: Whether it is a plain text as a whole, such as a file of settings.
    """
    strings = _divided(text, stretches)
    commands = [part for part in strings if _any_command().search(text[slice(*part)])]
    for form, pattern in _forms():
        done = 0
        for start, end in spans_in(pattern, text, commands if form.is_command else stretches):
            if start < done:
                continue  # a part of a secret
            value = form.span(text, start, end, is_plain)
            if value is not None:
                done = value.end
                yield value.start, value.end


def _divided(text: str, stretches: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return stretches of JSON divided where a string ends: no command continues in another string.

    The arguments of a command may be a list of strings.
    """
    if not _JSON_START.match(text):
        return [*stretches]
    parts = []
    for first, last in stretches:
        for border in _STRING_END.finditer(text, first, last):
            parts.append((first, border.start() + 1))
            first = border.start() + 1
        parts.append((first, last))
    return parts


@functools.cache
def _any_command() -> Pattern:
    return Pattern(_ANY_COMMAND)


@functools.cache
def _forms() -> tuple[tuple[_NamedForm, Pattern], ...]:
    return tuple((form, Pattern(form.pattern)) for form in _FORMS)


def _first(text: str, start: int) -> int:
    """The start of a name, given the start of its last words."""
    first = start
    while first > max(0, start - _LONGEST_NAME) and _NAME_LETTER.match(text, first - 1):
        first -= 1
    if first < start and text[first - 1 : first] == "\\" and text[first] in "nrt":
        first += 1  # the letter of an escape
    return first


def _name(text: str, start: int) -> str:
    match = _NAME.match(text, _first(text, start))
    return match[0].lstrip("-$") if match else ""


def _assigned(text: str, start: int, end: int, is_plain: bool) -> TextValue | None:
    """The value of an assignment."""
    first, name = _first(text, start), _name(text, start)
    # In a connection string PWD is the password, elsewhere the shell's directory.
    kind = secret_kind(name.lower() if text[first - 1 : first] == ";" else name)
    if not kind:
        return None
    is_json = _JSON_KEY.search(text[max(0, end - 20) : end]) is not None
    if kind == "cookie":
        value = cookie_value(text, end)
    else:
        at = end
        while name.lower().endswith("authorization") and (scheme := _SCHEMES.match(text, at)):
            at = scheme.end()
        value = text_value(text, at)
    if value is None or (is_json and (value.form == "bare" or text[value.start - 1] == '"')):
        return None  # `json_secrets` reads it
    # A whole line of a file of settings, or a variable of an environment.
    is_line = _LINE_END.match(text, value.end) and _LINE_START.search(
        text[max(0, first - 40) : first]
    )
    is_variable = value.start == end and text[end - 1] == "=" and _VARIABLE.fullmatch(name)
    is_alone = bool(is_variable or (is_plain and is_line))
    return value if is_secret_text(kind, text, value, is_alone=is_alone) else None


def _element(text: str, start: int, end: int, _is_plain: bool) -> TextValue | None:
    """The text of an XML element, given its opening tag."""
    value = _element_text(text, end)
    kind = secret_kind(text[start + 1 : end - 1].split()[0])
    if value is None or not kind:
        return None
    return (
        value if is_secret_text(kind, text, value._replace(form="quoted"), is_alone=True) else None
    )


def _element_text(text: str, at: int) -> TextValue | None:
    match = _ELEMENT_TEXT.match(text, at)
    if match is None or not _ELEMENT_END.match(text, match.end()):
        return None
    return TextValue(*match.span(1), "bare")


def _pair(text: str, start: int, end: int, _is_plain: bool) -> TextValue | None:
    """The value that follows the name of a secret as another value."""
    first = _first(text, start)
    if not _NAMED_BY.search(text[max(0, first - _LONGEST_NAME) : first]):
        return None
    value = _element_text(text, end) if text[end - 1] == ">" else text_value(text, end)
    return _checked(text, _name(text, start), value)


def _option(text: str, start: int, end: int, _is_plain: bool) -> TextValue | None:
    """The value of an option of a command, or its next argument in a list."""
    value = text_value(text, end)
    if value is None or text[value.start] == "-":
        return None
    is_argument = text[end - 1] in "\"'`"
    return _checked(text, _name(text, start), value, is_alone=is_argument)


def _checked(
    text: str, name: str, value: TextValue | None, *, is_alone: bool = False
) -> TextValue | None:
    kind = secret_kind(name)
    if value is None or not kind:
        return None
    return value if is_secret_text(kind, text, value, is_alone=is_alone) else None


def _listed(text: str, start: int, end: int, _is_plain: bool) -> TextValue | None:
    """The value after a name in a list of texts or arguments."""
    name = _NAME.search(text, start, end)
    value = text_value(text, end)
    if value is None or value.form == "bare" or name is None or not secret_kind(name[0]):
        return None
    return value if is_plausible(text[value.start : value.end]) else None


def _likely(text: str, start: int, end: int, _is_plain: bool) -> TextValue | None:
    """The value that follows the name of a secret in a sentence or command."""
    before = _BEFORE_VALUE.match(text, start, end)
    value = text_value(text, before.end()) if before else None
    if before is None or value is None or not secret_kind(_name(text, start)):
        return None
    content = text[value.start : value.end]
    if _ASSIGNMENT.search(content):
        return None  # the next assignment
    if not is_plausible(content) or not is_secret_text("secret", text, value, is_alone=False):
        return None
    is_direct = _VERBS.isdisjoint(before[0].lower().replace(":", " ").split())
    return value if not is_direct or len(content) >= _SHORTEST_DIRECT else None


def _password(text: str, start: int, end: int, _is_plain: bool) -> TextValue | None:
    """A value that is always a password if it is in a command."""
    value = text_value(text, end)
    if value is None or text[value.start] == "-" or text[end].isspace():
        return None  # another option, or an option that prompts for the password
    return _in_command(text, start, value)


def _in_command(text: str, start: int, value: TextValue) -> TextValue | None:
    """The value of a command's option; in a sentence, it must be plausible."""
    if not is_secret_text("secret", text, value, is_alone=True):
        return None
    is_run = text[start] == "\\" or _COMMAND_START.search(text[max(0, start - 40) : start])
    return value if is_run or is_plausible(text[value.start : value.end]) else None


def _user_password(text: str, start: int, end: int, _is_plain: bool) -> TextValue | None:
    """The password after the name of a user and a colon or percent sign."""
    value = bare_value(text, end)
    border = _USER_END.search(text, value.start, value.end) if value else None
    if value is None or border is None or border.end() >= value.end:
        return None
    return _in_command(text, start, value._replace(start=border.end()))


def _piped(text: str, start: int, end: int, _is_plain: bool) -> TextValue | None:
    """The password that a shell passes to a program's standard input."""
    if text[start] == "-":
        return _password(text, start, end, _is_plain)
    echo = _ECHO.match(text, start)
    value = text_value(text, echo.end()) if echo else None
    if value is None or not is_secret_text("secret", text, value, is_alone=True):
        return None
    user = (
        _USER_BEFORE.match(text, value.start, value.end) if "chpasswd" in text[start:end] else None
    )
    return value._replace(start=user.end()) if user else value


def _called(text: str, _start: int, end: int, _is_plain: bool) -> TextValue | None:
    """The password in the brackets of a call."""
    value = text_value(text, end)
    if value is None or value.form == "bare":
        return None
    return value if is_plausible(text[value.start : value.end]) else None


def _pgpass(text: str, _start: int, end: int, _is_plain: bool) -> TextValue | None:
    """The password at the end of a line of PostgreSQL's file of passwords."""
    value = bare_value(text, end)
    return value if value and is_plausible(text[value.start : value.end]) else None


def _reversed(text: str, start: int, end: int, _is_plain: bool) -> TextValue | None:
    """The value before its name."""
    begin = max(0, start - _LONGEST_PAIR)
    match = _VALUE_BEFORE.search(text[begin:start])
    name = _NAME_AT_END.search(text[start:end])
    if match is None or name is None:
        return None
    value = TextValue(begin + match.start(1), begin + match.end(1), "bare")
    return _checked(text, name[1], value)


# The signs between the last words of a name and its value.
_ASSIGNED = rf"(?:{QUOTE})?\]?[ \t]*(?::=|=>|\?=|\|\|=|::|[:=：])"
_TAG_END = r"(?:\s[^<>]*)?>"
_PAIRED = (
    rf"(?:{QUOTE}>(?:{GAP}<value>)?"
    rf"|(?:{QUOTE})?,?{GAP},?(?:{QUOTE})?-*[a-z_]*(?:value|content)(?:{QUOTE})?"
    rf"(?:{GAP}[:=]{GAP}|[ \t]+)"
    rf"|{QUOTE}[ \t]*\{{[^{{}}]*\bdefault[ \t]*=[ \t]*)"
)
_LISTED = rf"(?:{QUOTE})?(?:{GAP},|[ \t]+to[ \t]){GAP}"
_LIKELY = (
    r"(?:(?:(?:[ \t]+[a-z]+)*?(?:[ \t]+(?:is|was|to|est|ist|lautet)(?:[ \t]+now)?:?|:))?[ \t]+"
    r"|[ \t]*(?:->|→)[ \t]*"
    rf"|(?:{QUOTE})?[ \t]*\|[ \t]*|</t[dh]>{GAP}<t[dh][^<>]*>|:?(?:\r?\n|\\+n)+)"
    rf"(?:{QUOTE})?"
    r"[^\s\\]*(?:[0-9]|[a-z0-9][#$%^*+=~&@][a-z0-9])"
)
_NAME_BEFORE = rf"(?:key|name)(?:{QUOTE})?{GAP}[:=]{GAP}(?:{QUOTE})?[a-z0-9_.-]*"
_NAME_END = rf"(?:{QUOTE}|\s|\\+n|$)"
_NAMED_AFTER = rf"(?i:{_NAME_BEFORE}(?:{NAME_ENDS}){_NAME_END})"
_OPENING_TAG = rf"(?i:<[a-z0-9_:.-]*(?:{NAME_ENDS}){_TAG_END})"
_LOGIN_PASSWORD = rf"(?i:login{GAP}[^\s\\]+{GAP}password[ \t]+)"
_PIPED = (
    rf"\b(?:echo|printf){_COMMAND}\|[ \t]*{_COMMAND}"
    r"(?:password-stdin|with-token|chpasswd|sudo[ \t]+-S)"
    rf"|--(?:password-stdin|with-token)[ \t]*<<<[ \t]*"
)
# A user and a password, or in SQL a password, in brackets.
_CALLED = (
    rf"(?i:(?:auth|login|credentials?)[ \t]*=?[ \t]*\({GAP}{QUOTE}[^\s\"'`\\]+{QUOTE}{GAP},{GAP}"
    r"|\bidentified[ \t]+by[ \t]+|\bpassword[ \t]*\([ \t]*|\bhmac\.new\([ \t]*|\bfernet\([ \t]*"
    r"|\bjwt\.(?:encode|decode|sign|verify)\([^\"'`\r\n\\]*,[ \t]*)"
)
_PGPASS = r"\b[a-zA-Z0-9.*-]+:(?:[0-9]{3,5}|\*):[^\s:\"'\\]+:[^\s:\"'\\]+:"
_FORMS = (
    _NamedForm(rf"(?i:(?:{NAME_ENDS}){_ASSIGNED})", _assigned),
    _NamedForm(_OPENING_TAG, _element),
    _NamedForm(rf"(?i:(?:{NAME_ENDS}){_PAIRED})", _pair),
    _NamedForm(rf"(?i:\B--?[a-z0-9-]*(?:{NAME_ENDS}){_SEPARATOR})", _option),
    _NamedForm(rf"(?i:[a-z0-9_.-]*(?:{NAME_ENDS}){_LISTED})", _listed),
    _NamedForm(rf"(?i:(?:{NAME_ENDS}){_LIKELY})", _likely),
    _NamedForm(_LOGIN_PASSWORD, _password),
    *(_NamedForm(_commands((option,)), _password, is_command=True) for option in _PASSWORDS),
    *(_NamedForm(_commands((option,)), _user_password, is_command=True) for option in _USERS),
    _NamedForm(_PIPED, _piped, is_command=True),
    _NamedForm(_CALLED, _called),
    _NamedForm(_PGPASS, _pgpass),
    _NamedForm(_NAMED_AFTER, _reversed),
)
TEXT_TAILS = f"(?:{_ASSIGNED}|{_PAIRED}|{_LISTED}|{_LIKELY})"
"""A pattern for the signs between the last words of a name and its value."""
_ANY_COMMAND = f"{_commands((*_PASSWORDS, *_USERS))}|{_PIPED}"
OTHER_FORMS = "|".join(
    (_OPENING_TAG, _LOGIN_PASSWORD, _ANY_COMMAND, _CALLED, _PGPASS, _NAMED_AFTER)
)
"""A pattern for the forms whose value is not after a name."""
