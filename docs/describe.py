"""Turns definitions into Markdown: signatures as they are written, docstrings, tables."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

Documented = type | Callable[..., Any]

WIDTH = 100
"""Characters of a signature on one line; a longer one has a line for each parameter."""
_KINDS = inspect.Parameter
_STARRED = (_KINDS.VAR_POSITIONAL, _KINDS.VAR_KEYWORD)


def block(code: str, language: str = "python") -> str:
    """Return lines of code as a block."""
    return f"```{language}\n{code}\n```"


def definition(start: str, thing: Documented, *, without: Container[str] = ()) -> str:
    """Return a signature as a block, behind `start` ("def name"), `without` some parameters."""
    found = inspect.signature(thing)
    parameters = [one for one in found.parameters.values() if one.name not in without and one.annotation != "Never"]
    words = list(_words(parameters, thing))
    untold = isinstance(thing, type) or found.return_annotation is inspect.Signature.empty
    end = "" if untold else f" -> {hint_text(found.return_annotation)}"
    line = f"{start}({', '.join(words)}){end}"
    if len(line) > WIDTH:
        line = f"{start}(\n" + "".join(f"    {word},\n" for word in words) + f"){end}"
    return block(line)


def _words(parameters: Sequence[inspect.Parameter], thing: Documented) -> Iterator[str]:
    """The parameters as they are written in a `def`, with the marks for positional and for named ones."""
    starred = False
    for number, one in enumerate(parameters):
        options = _options(one, thing)
        if not starred and (options or one.kind is _KINDS.KEYWORD_ONLY):
            yield "*"
        starred = starred or one.kind not in (_KINDS.POSITIONAL_ONLY, _KINDS.POSITIONAL_OR_KEYWORD)
        yield from options or [_word(one)]
        later = parameters[number + 1 :]
        if one.kind is _KINDS.POSITIONAL_ONLY and all(two.kind is not _KINDS.POSITIONAL_ONLY for two in later):
            yield "/"


def _options(one: inspect.Parameter, thing: Documented) -> list[str]:
    """The keywords of an unpacked TypedDict, each of which may be left out."""
    unpacked = re.fullmatch(r"Unpack\[(\w+)\]", hint_text(one.annotation))
    if unpacked is None:
        return []
    words = getattr(inspect.getmodule(thing), unpacked[1])
    return [f"{name}: {hint_text(hint)} = ..." for name, hint in words.__annotations__.items()]


def _word(one: inspect.Parameter) -> str:
    stars = "*" * (1 + _STARRED.index(one.kind)) if one.kind in _STARRED else ""
    hint = "" if one.annotation is _KINDS.empty else f": {hint_text(one.annotation)}"
    if one.default is _KINDS.empty:
        return f"{stars}{one.name}{hint}"
    return f"{one.name}{hint}{' = ' if hint else '='}{_default(one.default)}"


def _default(value: object) -> str:
    """A default as one would write it; what has no short form is left open."""
    if isinstance(value, type) or inspect.isfunction(value):
        return value.__name__
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return "..." if "<" in text or len(text) > 40 else text


def hint_text(hint: object) -> str:
    """Return a type hint as it was written: modules that put theirs off have them as texts."""
    text = hint if isinstance(hint, str) else getattr(hint, "__forward_arg__", None) or inspect.formatannotation(hint)
    return re.sub(r"\b(?:typing|tenure\.\w+|collections\.abc|datetime)\.", "", text)


def docstring(thing: Any) -> str:
    """Return the docstring of something as Markdown, which it nearly is."""
    return as_markdown(thing.__doc__ or "")


def as_markdown(text: str) -> str:
    """Return a text that is indented as in code, with one blank behind a full stop."""
    return re.sub(r"(?<=\S)  +", " ", inspect.cleandoc(text))


def one_line(text: str | None) -> str:
    """Return a text on one line."""
    return " ".join((text or "").split())


def filled(*sentences: str) -> str:
    """Return sentences as one paragraph."""
    return textwrap.fill(" ".join(map(one_line, sentences)), 120, break_long_words=False, break_on_hyphens=False)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; a bar in a cell does not end it."""
    lines = [columns, ["---"] * len(columns), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
