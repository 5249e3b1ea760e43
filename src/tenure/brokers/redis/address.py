"""Where Redis is, by URL: one server, Sentinels that know the primary, or a cluster.

    redis://[[USER]:PASSWORD@]HOST[:PORT][/DB]                      one server; valkey:// is the same
    rediss://...                                                    the same over TLS
    redis+sentinel://[[USER]:PASSWORD@]HOST[:PORT],HOST.../SERVICE[/DB]
    redis+cluster://[[USER]:PASSWORD@]HOST[:PORT],HOST...

The options behind `?` have redis-py's names, so that a URL which is in use elsewhere works here; `replicas` is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Literal, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tenure.errors import ConfigError
from tenure.names import without_secrets

Kind = Literal["single", "sentinel", "cluster"]

KINDS: dict[str, Kind] = {
    "redis": "single",
    "rediss": "single",
    "valkey": "single",
    "redis+sentinel": "sentinel",
    "redis+cluster": "cluster",
}
"""URL scheme -> what stands there."""

PORTS: dict[Kind, int] = {"single": 6379, "sentinel": 26379, "cluster": 6379}

_TLS_OPTIONS = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname")
_SENTINEL_OPTIONS = ("sentinel_username", "sentinel_password")
MAX_REPLICAS = 100
_FLAGS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class Place(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Login:
    """Who this is to a server; both empty where it asks for nothing."""

    username: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Tls:
    """How a server proves who it is, and this client to it; the paths are of PEM files, "" means the system's own."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    verify: bool = True
    check_host: bool = True


@dataclass(frozen=True, slots=True)
class Address:
    """What a URL says: the places are the server's, the Sentinels', or some of the cluster's."""

    kind: Kind
    places: tuple[Place, ...]
    db: int = 0
    login: Login = Login()
    service: str = ""
    sentinel_login: Login = Login()
    tls: Tls | None = None
    replicas: int = 0
    """How many replicas have to have a write before its answer is believed."""

    def __str__(self) -> str:
        places = ", ".join(map(str, self.places))
        return f"{self.service} of {places}" if self.service else places


def parse(url: str) -> Address:
    """Return what a broker URL says; raises ConfigError, whose text shows no password."""
    try:
        return _parse(url)
    except ValueError as error:
        raise ConfigError(f"broker URL {without_secrets(url)!r}: {error}") from None


def _parse(url: str) -> Address:
    parts = urlsplit(url)
    kind = KINDS.get(parts.scheme)
    if kind is None:
        raise ValueError(f"{parts.scheme}:// is none of {', '.join(f'{name}://' for name in KINDS)}")
    if "@" in parts.path + parts.query + parts.fragment:
        raise ValueError("a password has / ? # in it: write them as %2F %3F %23")
    if parts.fragment:
        raise ValueError("leave out what follows the #")
    user, hosts = _userinfo(parts.netloc)
    options = _options(parts, kind)
    service, db = _path(parts.path, kind)
    places = tuple(_place(host, PORTS[kind]) for host in hosts.split(","))
    if kind == "single" and len(places) > 1:
        raise ValueError("it has several hosts: write redis+sentinel:// or redis+cluster:// in front of them")
    return Address(
        kind,
        places,
        db,
        user,
        service,
        Login(options.get("sentinel_username", ""), options.get("sentinel_password", "")),
        _tls(options, parts.scheme),
        _replicas(options.get("replicas", "0")),
    )


def _userinfo(netloc: str) -> tuple[Login, str]:
    info, at, hosts = netloc.rpartition("@")
    if not at:
        return Login(), hosts
    user, _, password = info.partition(":")
    if not password:
        raise ValueError("there is no password before the @; write :PASSWORD@ or USER:PASSWORD@")
    return Login(unquote(user), unquote(password)), hosts


def _place(text: str, port: int) -> Place:
    try:
        parts = urlsplit(f"//{text}")
        given = parts.port
    except ValueError as error:
        raise ValueError(f"{text!r} is no HOST[:PORT]: {error}") from None
    if not parts.hostname:
        raise ValueError(f"{text!r} names no host; write HOST or HOST:PORT")
    if given == 0:
        raise ValueError(f"{text!r}: nobody listens on port 0")
    return Place(parts.hostname, given or port)


def _path(path: str, kind: Kind) -> tuple[str, int]:
    """Return the Sentinel's service name and the database's number."""
    words = [unquote(word) for word in path.strip("/").split("/")] if path.strip("/") else []
    service = ""
    if kind == "sentinel":
        if not words:
            raise ValueError("name the service that the Sentinels watch: redis+sentinel://HOST/SERVICE")
        service = words.pop(0)
    if not words:
        return service, 0
    if kind == "cluster":
        raise ValueError("a cluster has one database: leave out what follows the hosts")
    if len(words) > 1 or not (words[0].isascii() and words[0].isdigit()):
        raise ValueError(f"{'/'.join(words)!r} is no number of a database; write /0, or nothing")
    return service, int(words[0])


def _options(parts: SplitResult, kind: Kind) -> dict[str, str]:
    known = ("replicas", "ssl", *_TLS_OPTIONS, *(_SENTINEL_OPTIONS if kind == "sentinel" else ()))
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in known:
            close = get_close_matches(name, known, 1)
            hint = f" Did you mean {close[0]}?" if close else ""
            raise ValueError(f"{name} is no option here.{hint} There are: {', '.join(known)}")
    return options


def _replicas(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= MAX_REPLICAS):
        raise ValueError(f"replicas={text} is no number from 0 to {MAX_REPLICAS}")
    return int(text)


def _tls(options: Mapping[str, str], scheme: str) -> Tls | None:
    wanted = _flag("ssl", options["ssl"]) if "ssl" in options else scheme == "rediss"
    if not wanted:
        if scheme == "rediss":
            raise ValueError("ssl=false contradicts rediss://; write redis://")
        for name in _TLS_OPTIONS:
            if name in options:
                raise ValueError(f"{name} is for TLS; write {_with_tls(scheme)}")
        return None
    if options.get("ssl_keyfile") and not options.get("ssl_certfile"):
        raise ValueError("ssl_keyfile needs ssl_certfile beside it")
    verify = _verify(options.get("ssl_cert_reqs", "required"))
    return Tls(
        options.get("ssl_ca_certs", ""),
        options.get("ssl_certfile", ""),
        options.get("ssl_keyfile", ""),
        verify,
        verify and _flag("ssl_check_hostname", options.get("ssl_check_hostname", "true")),
    )


def _with_tls(scheme: str) -> str:
    return "rediss://" if scheme == "redis" else "ssl=true beside it"


def _flag(name: str, text: str) -> bool:
    try:
        return _FLAGS[text.lower()]
    except KeyError:
        raise ValueError(f"{name}={text} is neither true nor false") from None


def _verify(text: str) -> bool:
    word = text.lower().removeprefix("cert_")
    if word not in ("required", "none"):
        raise ValueError(f"ssl_cert_reqs={text} is not possible: write required, or none to trust anybody")
    return word == "required"
