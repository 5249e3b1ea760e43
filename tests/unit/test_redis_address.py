"""Broker URLs for Redis."""

from __future__ import annotations

import pytest

from tenure.brokers.redis.address import Address, Login, Place, Tls, parse
from tenure.errors import ConfigError
from tenure.names import without_secrets

LOCAL = (Place("127.0.0.1", 6379),)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://127.0.0.1", Address("single", LOCAL)),
        ("valkey://127.0.0.1:6379/", Address("single", LOCAL)),
        ("redis://127.0.0.1:6379/0", Address("single", LOCAL)),
        ("redis://127.0.0.1:6380/5", Address("single", (Place("127.0.0.1", 6380),), 5)),
        ("redis://:secret@127.0.0.1", Address("single", LOCAL, login=Login("", "secret"))),
        ("redis://me:p%40ss%2F%23@127.0.0.1/2", Address("single", LOCAL, 2, Login("me", "p@ss/#"))),
        ("redis://[::1]:6380", Address("single", (Place("::1", 6380),))),
        ("rediss://127.0.0.1", Address("single", LOCAL, tls=Tls())),
        ("valkey://127.0.0.1?ssl=true", Address("single", LOCAL, tls=Tls())),
        (
            "rediss://127.0.0.1?ssl_ca_certs=/etc/ca.pem&ssl_certfile=/a.crt&ssl_keyfile=/a.key&ssl_check_hostname=no",
            Address("single", LOCAL, tls=Tls("/etc/ca.pem", "/a.crt", "/a.key", check_host=False)),
        ),
        (
            "rediss://127.0.0.1?ssl_cert_reqs=CERT_NONE",
            Address("single", LOCAL, tls=Tls(verify=False, check_host=False)),
        ),
        (
            "redis+sentinel://s1,s2:26380/jobs",
            Address("sentinel", (Place("s1", 26379), Place("s2", 26380)), service="jobs"),
        ),
        (
            "redis+sentinel://:pw@s1/the%20jobs/3?sentinel_password=other&sentinel_username=me&replicas=1",
            Address(
                "sentinel", (Place("s1", 26379),), 3, Login("", "pw"), "the jobs", Login("me", "other"), replicas=1
            ),
        ),
        ("redis+cluster://a:7000,b:7001", Address("cluster", (Place("a", 7000), Place("b", 7001)))),
    ],
)
def test_a_url_says_where_redis_is(url: str, address: Address) -> None:
    assert parse(url) == address


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("redis://", "'' names no host; write HOST or HOST:PORT"),
        ("redis://a:b", "'a:b' is no HOST[:PORT]"),
        ("redis://a:0", "'a:0': nobody listens on port 0"),
        ("redis://a:70000", "'a:70000' is no HOST[:PORT]"),
        ("redis://a,b", "it has several hosts: write redis+sentinel:// or redis+cluster:// in front of them"),
        ("redis://a,", "names no host"),
        ("redis://a/x", "'x' is no number of a database"),
        ("redis://a/1/2", "'1/2' is no number of a database"),
        ("redis://a/-1", "'-1' is no number of a database"),
        ("redis://me@a", "there is no password before the @; write :PASSWORD@ or USER:PASSWORD@"),
        ("redis://a#b", "leave out what follows the #"),
        ("redis://a?dbb=1", "dbb is no option here. There are: "),
        ("redis://a?replica=1", "replica is no option here. Did you mean replicas?"),
        ("redis://a?sentinel_password=x", "sentinel_password is no option here"),
        ("redis://a?replicas=x", "replicas=x is no number from 0 to 100"),
        ("redis://a?ssl_ca_certs=/x", "ssl_ca_certs is for TLS; write rediss://"),
        ("redis+cluster://a?ssl_ca_certs=/x", "ssl_ca_certs is for TLS; write ssl=true beside it"),
        ("rediss://a?ssl=false", "ssl=false contradicts rediss://; write redis://"),
        ("rediss://a?ssl=maybe", "ssl=maybe is neither true nor false"),
        ("rediss://a?ssl_cert_reqs=optional", "ssl_cert_reqs=optional is not possible"),
        ("rediss://a?ssl_keyfile=/x", "ssl_keyfile needs ssl_certfile beside it"),
        ("redis+sentinel://a", "name the service that the Sentinels watch: redis+sentinel://HOST/SERVICE"),
        ("redis+sentinel://a/jobs/b", "'b' is no number of a database"),
        ("redis+cluster://a/1", "a cluster has one database: leave out what follows the hosts"),
    ],
)
def test_a_url_that_cannot_be_is_refused_with_the_way_out(url: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(url)
    assert text in str(caught.value)
    assert repr(without_secrets(url)) in str(caught.value)


def test_no_password_is_ever_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        parse("redis+sentinel://me:hush@a?sentinel_password=hush&x=1")
    assert "hush" not in str(caught.value)
    assert "redis+sentinel://me:***@a?sentinel_password=***&x=1" in str(caught.value)
    for raw in ("redis://:hu/sh@a", "redis://:hu?sh@a", "redis://:hu#sh@a/0"):
        with pytest.raises(ConfigError, match=r"'redis://:\*\*\*@a.*': a password has / . # in it: write them as %2F"):
            parse(raw)
    for mistyped in ("redis:/:hush@a", "redis//me:hush@a", "redis:me:hush@a", ":hush@a"):
        assert "hush" not in without_secrets(mistyped)
        assert without_secrets(mistyped).endswith(":***@a")
    assert without_secrets("redis://me@a:6379?ssl=true") == "redis://me@a:6379?ssl=true"
    assert without_secrets("redis://:a@b@h/0") == "redis://:***@h/0"
    assert without_secrets("redis://:a:b@h/0") == "redis://:***@h/0"
    assert without_secrets("redis://[::1]:6379/0") == "redis://[::1]:6379/0"
    assert "hush" not in repr(parse("redis://:hush@a"))
    assert str(parse("redis://:hush@a")) == "a:6379"
    assert str(parse("redis+sentinel://:hush@a,b/jobs")) == "jobs of a:26379, b:26379"
