"""The server's settings: precedence, origins, and one clear line for every way to get them wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from noosphere.server import config
from noosphere.server.addresses import split_address
from noosphere.server.authentication import check_reach
from noosphere.server.config import ConfigError, Settings, load, loading
from noosphere.server.drivers import StartupError


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("NOOSPHERE_"):
            monkeypatch.delenv(name)


def _file(folder: Path, text: str) -> Path:
    path = folder / "noosphere.toml"
    path.write_text(text)
    return path


def test_defaults_serve_on_loopback_with_full_durability() -> None:
    effective = load()
    assert effective.settings.listen == "127.0.0.1:7443"
    assert effective.settings.data == Path("noosphere-data")
    assert effective.settings.durability == "fsync"
    assert set(effective.origins.values()) == {"default"}
    assert set(effective.origins) == set(Settings.model_fields)


def test_flag_wins_over_environment_over_file_over_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _file(tmp_path, 'listen = "127.0.0.1:1"\ndata = "of-file"\ndurability = "os"\n')
    monkeypatch.setenv("NOOSPHERE_LISTEN", "127.0.0.1:2")
    monkeypatch.setenv("NOOSPHERE_DATA", "of-environment")
    effective = load(file, {"listen": "127.0.0.1:3", "log_level": None})
    settings = effective.settings
    assert (settings.listen, settings.data, settings.durability) == (
        "127.0.0.1:3",
        Path("of-environment"),
        "os",
    )
    assert {key: effective.origins[key] for key in ("listen", "data", "durability", "log_level")} == {
        "listen": "--listen",
        "data": "NOOSPHERE_DATA",
        "durability": str(file),
        "log_level": "default",
    }


def test_the_environment_can_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOOSPHERE_CONFIG", str(_file(tmp_path, "reflection = true\n")))
    assert load().settings.reflection is True


def test_settings_alone_read_nothing_but_their_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOOSPHERE_DURABILITY", "os")
    assert Settings().durability == "fsync"
    assert load().settings.durability == "os"


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOOSPHERE_LOG_LEVEL", "")
    assert load().origins["log_level"] == "default"


def test_settings_cannot_change_after_they_were_read() -> None:
    with pytest.raises(ValidationError):
        Settings().durability = "os"


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.8.9.1:7443", "localhost:65535", "[::1]:7443"])
def test_loopback_addresses_are_allowed(listen: str) -> None:
    assert Settings(listen=listen).listen == listen


@pytest.mark.parametrize("listen", ["0.0.0.0:7443", "[::]:7443", "192.168.1.4:7443", "example.org:7443"])
def test_what_other_machines_reach_needs_credentials_or_the_word_of_the_operator(listen: str) -> None:
    """The files are read by `config show` and others too, so it is the start of a server that is refused."""
    for refused in (
        {"listen": listen},
        {"listen": listen, "tokens": True},
        {"metrics_listen": listen},
        {"metrics_listen": listen, "insecure": True},
    ):
        with pytest.raises(StartupError, match=r"^other machines reach "):
            check_reach(Settings(**refused))
    for allowed in (
        {"listen": listen, "tokens": True, "insecure": True},
        {"listen": listen, "tokens": True, "tls_certificate": "server.crt", "tls_key": "server.key"},
        {"listen": listen, "tls_certificate": "c", "tls_key": "k", "tls_client_ca": "ca"},
        {"listen": listen, "insecure": True},
        {"metrics_listen": listen, "metrics_open": True},
    ):
        check_reach(Settings(**allowed))


@pytest.mark.parametrize(
    "listen", ["", "7443", "localhost", "localhost:", "::1:7443", "127.0.0.1:65536", "a:b:1", "h:-1"]
)
def test_malformed_addresses_are_refused(listen: str) -> None:
    with pytest.raises(ConfigError, match=r"^--listen: .* is not host:port with a port from 0 to 65535$"):
        load(flags={"listen": listen})


def test_addresses_split_into_host_and_port() -> None:
    assert split_address("localhost:7443") == ("localhost", 7443)
    assert split_address("[::1]:0") == ("::1", 0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('durabilty = "os"', "unknown key 'durabilty'; is durability meant?"),
        ('[qqq]\nlisten = "x"', "unknown key 'qqq'; known are listen, health_listen"),
        ('durability = "maybe"', "durability: input should be 'fsync' or 'os', not 'maybe'"),
        ("memory_mib_max = 1", "memory_mib_max: input should be greater than or equal to 16, not 1"),
        ('jwt_jwks = "/k"', "jwt_jwks: '/k' is of no use without jwt_issuer"),
        ("listen = 7443", "listen: input should be a valid string, not 7443"),
        ('data = ""', "data: '' is not a path"),
        ('data = "a\\u0000b"', "data: 'a\\x00b' is not a path: it contains NUL"),
        ('data = "~nobody-of-that-name/x"', "data: '~nobody-of-that-name/x' is in a home directory"),
        ("listen = ", "is not TOML"),
        ("\udcff", "is not TOML"),
    ],
)
def test_an_error_in_the_file_names_file_and_key(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "noosphere.toml"
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ConfigError) as raised:
        load(file)
    assert str(raised.value).startswith(f"{file}: {problem}")
    assert ("known are" in str(raised.value)) == ("known are" in problem)
    assert "\n" not in str(raised.value)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.toml: cannot be read: No such file"):
        load(tmp_path / "missing.toml")
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("NOOSPHERE_LISTN", "x", "NOOSPHERE_LISTN: unknown environment variable; is NOOSPHERE_LISTEN meant?"),
        ("NOOSPHERE_XYZ", "1", "NOOSPHERE_XYZ: unknown environment variable; known are NOOSPHERE_A"),
        ("NOOSPHERE_DRAIN_SECONDS", "soon", "NOOSPHERE_DRAIN_SECONDS: input should be a valid number"),
        ("NOOSPHERE_REFLECTION", "perhaps", "NOOSPHERE_REFLECTION: input should be a valid boolean"),
    ],
)
def test_an_error_in_the_environment_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, problem: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as raised:
        load()
    assert str(raised.value).startswith(problem)


@pytest.mark.parametrize(
    "name",
    [
        "NOOSPHERE_SERVER",
        "NOOSPHERE_SERVICE_HOST",
        "NOOSPHERE_SERVICE_PORT_GRPC",
        "NOOSPHERE_PORT",
        "NOOSPHERE_PORT_7443_TCP_ADDR",
        "NOOSPHERE_HEADLESS_SERVICE_PORT",
    ],
)
def test_variables_of_the_client_and_of_kubernetes_are_left_alone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "tcp://10.0.0.1:7443")
    assert set(load().origins.values()) == {"default"}


def test_secrets_are_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key is masked by its type alone, in values and in errors."""

    class WithSecret(Settings):
        token: SecretStr = SecretStr("")

    monkeypatch.setattr(loading, "Settings", WithSecret)
    effective = load(flags={"token": "hunter2"})
    assert "hunter2" not in str(effective.settings.model_dump(mode="json"))
    with pytest.raises(ConfigError) as raised:
        load(flags={"token": ["hunter2"]})
    assert str(raised.value).startswith("--token: ")
    assert "hunter2" not in str(raised.value)


def test_a_key_of_an_api_is_a_secret_that_no_command_line_takes() -> None:
    settings = Settings(summariser_key=SecretStr("sk-canary"))
    assert "sk-canary" not in str(settings.model_dump(mode="json")) + repr(settings)
    assert not config.has_flag("summariser_key")
    assert config.has_flag("summariser_url")


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8000", "ftp://host/v1", "http://", "http://h:99999/v1", "http://[::1/v1", "http://h/v1?a=b"]
)
def test_what_is_no_base_of_an_api_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^--summariser-url: '.*' is not the base of an HTTP API, such as http://"):
        load(flags={"summariser_url": url})


def test_a_password_in_an_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigError, match=r"^--summariser-url: holds a user's name or password") as raised:
        load(flags={"summariser_url": "http://kim:hunter2@host/v1"})
    assert "hunter2" not in str(raised.value)


def test_a_model_must_be_named_for_an_endpoint() -> None:
    with pytest.raises(ConfigError, match=r"summariser_model: '' names no model, and summariser 'openai' needs one$"):
        load(flags={"summariser": "openai"})
    assert load(flags={"summariser": "openai", "summariser_model": "tiny"}).settings.summariser_model == "tiny"
    with pytest.raises(ConfigError, match=r"extractor_model: '' names no model, and extractor 'openai' needs one$"):
        load(flags={"extractor": "openai"})
    with pytest.raises(ConfigError, match=r"'' names no model, and transition_policy 'openai' needs one$"):
        load(flags={"transition_policy": "openai"})
    with pytest.raises(ConfigError, match=r"embedder_dimension: 0 is no dimension, and embedder 'openai' needs that"):
        load(flags={"embedder": "openai", "embedder_model": "tiny"})
    assert load(flags={"embedder": "openai", "embedder_model": "tiny", "embedder_dimension": 3}).settings


def test_every_key_is_described() -> None:
    assert all(field.description for field in Settings.model_fields.values())


@pytest.mark.parametrize("endpoints", ["127.0.0.1", "127.0.0.1:0", "http://h:2379", "h:1,h:x", ","])
def test_what_is_no_member_of_etcd_is_refused(endpoints: str) -> None:
    with pytest.raises(ConfigError, match=r"^--etcd-endpoints: '.*' is not host:port of a member of etcd$"):
        load(flags={"etcd_endpoints": endpoints, "redis_urls": "redis://h"})


def test_etcd_without_redis_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^--etcd-endpoints: 'h:2379' is of no use without NOOSPHERE_REDIS_URLS"):
        load(flags={"etcd_endpoints": "h:2379"})


def test_the_root_in_etcd_ends_in_a_slash() -> None:
    with pytest.raises(ConfigError, match=r"^--etcd-root: 'x' does not end in a slash$"):
        load(flags={"etcd_root": "x"})


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"tls_key": "k"}, "--tls-key: tls_key is of no use without tls_certificate"),
        ({"tls_certificate": "c"}, "default: tls_key: tls_certificate is of no use without tls_key"),
        ({"tls_client_ca": "a"}, "--tls-client-ca: tls_client_ca is of no use without tls_certificate"),
        ({"tls_certificate": ""}, "--tls-certificate: '' is not a path"),
        ({"tls_certificate": "~nobody-of-that-name/c", "tls_key": "k"}, "--tls-certificate: '~nobody-of-that-name/c'"),
    ],
)
def test_files_of_tls_go_together(flags: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(flags=flags)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"redis_tls_ca": "a"}, "--redis-tls-ca: redis_tls_ca is of no use without urls that begin with rediss://"),
        (
            {"redis_urls": "rediss://h", "redis_tls_key": "k"},
            "--redis-tls-key: redis_tls_key is of no use without redis_",
        ),
        ({"etcd_tls_ca": "a"}, "--etcd-tls-ca: etcd_tls_ca is of no use without etcd_endpoints"),
        ({"etcd_username": "u"}, "--etcd-username: etcd_username is of no use without etcd_endpoints"),
    ],
)
def test_what_protects_engines_needs_them(flags: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(flags=flags)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize(
    "url",
    [
        "h:8080",
        "ftp://h:8080",
        "http://",
        "http://h:0",
        "http://h:99999",
        "http://[::1",
        "http://h/v1",
        "https://h?a=b",
    ],
)
def test_what_is_no_url_of_weaviate_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(flags={"weaviate_url": url})
    assert str(caught.value) == f"--weaviate-url: {url!r} is not http://host:port or https://host:port of Weaviate"


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"weaviate_grpc": "h:50051"}, "--weaviate-grpc: weaviate_grpc is of no use without weaviate_url"),
        (
            {"weaviate_url": "http://h", "weaviate_grpc": "h:0"},
            "--weaviate-grpc: 'h:0' is not host:port of Weaviate's gRPC interface",
        ),
        (
            {"weaviate_url": "http://h", "weaviate_grpc": "http://h:50051"},
            "--weaviate-grpc: 'http://h:50051' is not host:port",
        ),
        (
            {"weaviate_url": "http://h", "weaviate_tls_ca": "a"},
            "--weaviate-tls-ca: weaviate_tls_ca is of no use without a weaviate_url that begins with https://",
        ),
        ({"weaviate_collection": "facts"}, "--weaviate-collection: string should match pattern"),
        ({"weaviate_replication": 0}, "--weaviate-replication: input should be greater than or equal to 1, not 0"),
        ({"weaviate_buckets": 257}, "--weaviate-buckets: input should be less than or equal to 256, not 257"),
        ({"weaviate_call_ms_max": 99}, "--weaviate-call-ms-max: input should be greater than or equal to 100, not 99"),
    ],
)
def test_what_is_told_of_weaviate_fits_together(flags: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(flags=flags)
    assert str(caught.value).startswith(problem)


def test_a_key_of_weaviate_is_not_repeated(tmp_path: Path) -> None:
    file = _file(tmp_path, 'weaviate_api_key = "canary"\n')
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert str(caught.value) == f"{file}: weaviate_api_key: weaviate_api_key is of no use without weaviate_url"
    found = load(_file(tmp_path, 'weaviate_url = "https://h"\nweaviate_api_key = "canary"\n')).settings
    assert "canary" not in repr(found) + str(found.model_dump(mode="json"))
    assert not config.has_flag("weaviate_api_key")
    with pytest.raises(ConfigError, match=r"^--weaviate-url: holds a user's name or password") as caught:
        load(flags={"weaviate_url": "http://kim:canary@h:8080"})
    assert "canary" not in str(caught.value)


def test_a_password_of_etcd_is_not_repeated(tmp_path: Path) -> None:
    engines = 'redis_urls = "redis://h"\netcd_endpoints = "h:1"\n'
    file = _file(tmp_path, f'{engines}etcd_password = "canary"\n')
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert (
        str(caught.value) == f"{file}: etcd_password: etcd_username and etcd_password are given together, or not at all"
    )
    file = _file(tmp_path, f'{engines}etcd_username = "u"\netcd_password = "canary"\n')
    assert "canary" not in repr(load(file).settings)


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"jwt_issuer": "i"}, "jwt_jwks: is required with jwt_issuer and jwt_audience"),
        ({"jwt_issuer": "i", "jwt_jwks": "keys.json"}, "--jwt-jwks: 'keys.json' is of no use without jwt_audience"),
        ({"jwt_issuer": "i", "jwt_audience": "a", "jwt_jwks": "http://i.example/k"}, "is not https"),
        (
            {"jwt_issuer": "i", "jwt_audience": "a", "jwt_jwks": "/k", "jwt_jwks_token_file": "/t"},
            "--jwt-jwks-token-file: jwt_jwks_token_file is of no use without a URL of https in jwt_jwks",
        ),
        ({"jwt_jwks_token_file": "/t"}, "jwt_jwks_token_file is of no use without a URL of https"),
    ],
)
def test_web_tokens_need_an_issuer_an_audience_and_keys_that_nobody_can_change(
    flags: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        load(flags=flags)
    assert problem in str(raised.value)
    found = Settings(jwt_issuer="i", jwt_audience="a", jwt_jwks="https://i.example/k")
    assert found.jwt_jwks == "https://i.example/k"
