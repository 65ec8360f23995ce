"""Reading the URL: every option, every mistake, and never the password."""

from __future__ import annotations

import pytest

from lash.errors import ConfigError
from lash.postgres.engine.options import PostgresOptions

URL = "postgresql://ann:s3cret@db.example:5433/agents"


def test_every_knob_is_read_from_the_url_and_the_rest_is_left_to_the_driver() -> None:
    """Our keys become options, the driver's stay in the DSN."""
    options = PostgresOptions.from_url(
        f"{URL}?schema=agents_1&max_size=4&min_size=2&acquire_timeout_s=1.5&connect_timeout_s=3&idle_lifetime_s=60"
        "&lifetime_s=0&lock_timeout_ms=250&statement_timeout_ms=900&pooler=transaction&application_name=worker"
        "&idle_transaction_timeout_ms=0&peer_timeout_s=12"
        "&listen_url=postgresql%3A%2F%2Fann%3As3cret%40direct.example%2Fagents%3Fsslmode%3Drequire&sslmode=require"
    )
    assert options == PostgresOptions(
        dsn=f"{URL}?sslmode=require",
        schema="agents_1",
        max_size=4,
        min_size=2,
        acquire_timeout_s=1.5,
        connect_timeout_s=3.0,
        idle_lifetime_s=60.0,
        lifetime_s=0.0,
        lock_timeout_ms=250,
        statement_timeout_ms=900,
        idle_transaction_timeout_ms=0,
        peer_timeout_s=12.0,
        pooler=True,
        listen_url="postgresql://ann:s3cret@direct.example/agents?sslmode=require",
        application_name="worker",
    )


def test_an_override_beats_the_url() -> None:
    """Arguments take precedence over the URL."""
    options = PostgresOptions.from_url(f"{URL}?max_size=4", max_size=7, pooler=False)
    assert (options.max_size, options.pooler) == (7, False)


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("max_size=many", "max_size"),
        ("max_size=0", "max_size"),
        ("max_size=2.5", "max_size"),
        ("min_size=17", "min_size"),
        ("min_size=-1", "min_size"),
        ("acquire_timeout_s=nan", "acquire_timeout_s"),
        ("acquire_timeout_s=0", "acquire_timeout_s"),
        ("connect_timeout_s=-1", "connect_timeout_s"),
        ("idle_lifetime_s=-1", "idle_lifetime_s"),
        ("lifetime_s=inf", "lifetime_s"),
        ("lock_timeout_ms=", "lock_timeout_ms"),
        ("statement_timeout_ms=0", "statement_timeout_ms"),
        ("idle_transaction_timeout_ms=-1", "idle_transaction_timeout_ms"),
        ("peer_timeout_s=1", "peer_timeout_s"),
        ("pooler=session", "pooler"),
        ("listen_url=db.example", "listen_url"),
        ("listen_url=postgresql://db.example/x?max_size=4", "listen_url"),
        ("schema=", "schema"),
        ("schema=" + "x" * 64, "schema"),
        ("max_sise=4", "max_sise"),
    ],
)
def test_a_wrong_value_is_refused_by_name(query: str, key: str) -> None:
    """The error names the key that is wrong."""
    with pytest.raises(ConfigError, match=key):
        PostgresOptions.from_url(f"{URL}?{query}")


def test_a_wrong_override_is_refused_by_name() -> None:
    """Overrides are checked like the URL."""
    with pytest.raises(ConfigError, match="max_size"):
        PostgresOptions.from_url(URL, max_size="many")
    with pytest.raises(ConfigError, match="colour"):
        PostgresOptions.from_url(URL, colour="red")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3cret@more@db.example/agents",
        "postgresql://ann:s3cret/more@db.example/agents",
        "postgresql://ann:s3cret#more@db.example/agents",
        "postgresql://ann:s3cret?more@db.example/agents",
        "postgresql://ann:s3cret@db.example:s3cret/agents",
        "postgresql://ann:s3cret@db.example:99999/agents",
        "postgresql://ann:s3cret@[db.example/agents",
        "mysql://ann:s3cret@db.example/agents",
        "postgresql://ann:s3cret@db.example/agents?s3cret",
        "postgresql://db.example/agents?listen_url=postgresql://ann:s3cret@more@db.example/agents",
    ],
)
def test_a_malformed_url_is_refused_without_showing_the_password(url: str) -> None:
    """Neither the message nor its cause repeats any part of the password."""
    with pytest.raises(ConfigError) as caught:
        PostgresOptions.from_url(url)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_the_password_is_not_in_the_text_of_the_options() -> None:
    """Printing or logging the options shows no password."""
    options = PostgresOptions.from_url(URL, listen_url=URL.replace("s3cret", "0ther"))
    text = repr(options) + str(options) + options.address + options.listen_address
    assert "s3cret" not in text
    assert "0ther" not in text


@pytest.mark.parametrize(
    ("url", "address"),
    [
        (URL, "db.example:5433"),
        ("postgresql://db.example/x", "db.example:5432"),
        ("postgresql://[::1]:5433/x", "[::1]:5433"),
        ("postgresql:///x?host=/run/pg&port=5434", "/run/pg:5434"),
        ("postgresql://a:1,b:2/x", "a:1,b:2"),
    ],
)
def test_the_address_names_host_and_port(url: str, address: str) -> None:
    """Messages can name the address of the server."""
    assert PostgresOptions.from_url(url).address == address


def test_a_url_without_a_host_keeps_its_database() -> None:
    """The driver gets the empty authority it needs."""
    assert PostgresOptions.from_url("postgresql:///agents?schema=s").dsn == "postgresql:///agents"
