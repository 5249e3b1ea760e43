"""Names: how a task gets its own, and which known word a mistyped one was meant to be."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from tenure.errors import ConfigError, TaskDefinitionError
from tenure.message import check_name

_SECRET = re.compile(r"^([a-z0-9+]*:?/{0,2}[^/?#@:]*:)(?!/).*(?=@)|(password=)[^&#]*", re.IGNORECASE)
"""What of a URL is nobody's business: the password before the host, and those among the options; also where it was
mistyped, for then it stands in an error.
"""

ELSEWHERE = {
    "max_retries": "max_attempts= (it counts the first try too: max_retries=3 is max_attempts=4)",
    "retries": "max_attempts= (it counts the first try too: retries=3 is max_attempts=4)",
    "retry": "max_attempts=",
    "autoretry_for": "retry_on= (without it every exception is retried, until max_attempts=)",
    "retry_for": "retry_on=",
    "retry_exceptions": "retry_on=",
    "dont_autoretry_for": "give_up_on=",
    "throws": "give_up_on=",
    "on_failure": "on_dead= (it is called once, when no try is left)",
    "on_retry_exhausted": "on_dead=",
    "retry_backoff": "backoff=Backoff(base=, factor=, cap=, jitter=)",
    "retry_backoff_max": "backoff=Backoff(cap=)",
    "retry_jitter": "backoff=Backoff(jitter=) (on unless it is False: each delay is half to the whole of the backoff)",
    "default_retry_delay": "backoff=Backoff(base=)",
    "countdown": "delay=",
    "eta": "run_at=",
    "expire": "expires=",
    "ttl": "expires=",
    "acks_late": "nothing: a job is always acknowledged after it has run",
    "reject_on_worker_lost": "nothing: a lost job always comes back, at most max_losses= times",
    "ignore_result": "nothing: leave it out",
    "track_started": "nothing: the record has every start",
    "bind": "nothing: use tenure.current_job inside the task",
    "base": "nothing: a task is a plain function",
    "serializer": "nothing: arguments are msgpack",
    "rate_limit": "nothing: this version has no rate limits",
    "time_limit": "timeout= (with `tenure worker --isolate` it ends the process as well)",
    "soft_time_limit": "timeout= (the function gets TimeLimitExceeded, and has half a second to clean up)",
    "max_age": "expires=",
    "unique": "key=",
    "unique_key": "key=",
    "task_id": "key=",
    "idempotency_key": "key=",
    "routing_key": "queue=",
    "queue_name": "queue=",
    "exchange": "queue=",
    "actor_name": "name=",
    "vt": "visibility_timeout=",
}
"""What other frameworks call an option, and what stands for it here."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` Did you mean max_attempts?`, or an empty text when nothing is near."""
    from difflib import get_close_matches  # only needed for an error

    near = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


def unknown_option(where: str, word: str, known: Iterable[str]) -> str:
    """Return the text for an option that there is not, with the way out."""
    names = list(known)
    if word in ELSEWHERE:
        return f"{where} has no option {word}=; here it is {ELSEWHERE[word]}."
    hint = did_you_mean(word, names)
    if not hint and "retr" in word:
        hint = " Did you mean 'max_attempts'?"
    return f"{where} has no option {word}=.{hint} Options: {', '.join(names)}."


def refuse_unknown(where: str, function: Callable[..., Any], words: Iterable[str]) -> NoReturn:
    """Raise ConfigError for keywords that a function does not have, with the ones that it has."""
    known = [name for name in inspect.signature(function).parameters if name != "unknown"]
    word = next(iter(words))
    raise ConfigError(f"{where} has no option {word}=.{did_you_mean(word, known)} Options: {', '.join(known)}.")


def shown(value: object) -> str:
    """Return a short text of a value for an error; never raises."""
    # A very long int has no decimal text (ValueError); its size says enough.
    if isinstance(value, int) and value.bit_length() > 128:
        return f"<int of {value.bit_length()} bits>"
    try:
        return f"{value!r:.100}"
    except Exception:  # noqa: BLE001
        return f"<{type(value).__name__}>"


def checked(kind: str, name: object) -> str:
    """Return `name` if it can be one, else raise ConfigError saying what the rule is."""
    if type(name) is not str:
        raise ConfigError(f"{kind} has to be a str, not {type(name).__name__}: {shown(name)}")
    try:
        return check_name(kind, name)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def task_name(function: Callable[..., Any]) -> str:
    """Return `module.qualname` as a worker will see it, never `__main__`; raises TaskDefinitionError."""
    qualname = getattr(function, "__qualname__", None)
    if not isinstance(qualname, str) or "<lambda>" in qualname:
        raise TaskDefinitionError(f"{function!r} has no name of its own; give the task one: @app.task(name=...)")
    return f"{_module_of(function, qualname)}.{qualname}"


def place_of(function: Callable[..., Any]) -> tuple[str, int] | None:
    """Return the file and first line of the function's code, below all decorators; None if it has none."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code is not None else None


def _module_of(function: Callable[..., Any], qualname: str) -> str:
    name: str = function.__module__
    if name not in ("__main__", "__mp_main__"):
        return name
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is None or spec is None:
        raise TaskDefinitionError(
            f"task {qualname} is defined in a file that is run as a script, so a worker would not find it under the "
            f"name __main__.{qualname}. Run the file as a module (python -m shop.jobs), or move the task to a module "
            f"that the script imports, or give it a name of its own: @app.task(name='jobs.{qualname}')."
        )
    # Whoever imports the module by its name has to meet this one, and not a second copy with a second app.
    sys.modules.setdefault(spec.name, module)
    return str(spec.name)


_ID = re.compile(r"[0-9a-f]{32}")


def job_id(value: object) -> str:
    """Return a job's id as 32 lower-case hexadecimal digits; dashes and capitals are taken too."""
    id = value.lower().replace("-", "") if isinstance(value, str) else ""
    if not _ID.fullmatch(id):
        raise ConfigError(f"{shown(value)} is no job's id: give 32 hexadecimal digits, as job.id and the log show it")
    return id


def without_secrets(url: str) -> str:
    """Return a broker's URL as it may be shown: no password is in it."""
    return _SECRET.sub(lambda found: f"{found[1] or found[2]}***", url)
