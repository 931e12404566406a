"""The fixtures of Noosphere's test kit: a server of each test's own."""

pytest_plugins = ["noosphere.testing.pytest_plugin"]
