"""A plugin for pytest in place of pytest-httpbin: the fixtures name a server that runs already, over HTTPS.

HTTPBIN is its URL, CERTIFICATE its certificate, which only the fixture `httpbin` makes trusted: the suite
also tests what happens without trust.
"""

import os
from types import SimpleNamespace

import pytest

SERVER = SimpleNamespace(url=os.environ["HTTPBIN"])


@pytest.fixture
def httpbin(monkeypatch):
    monkeypatch.setattr("requests.adapters.DEFAULT_CA_BUNDLE_PATH", os.environ["CERTIFICATE"])
    return SERVER


@pytest.fixture
def httpbin_secure():
    return SERVER


@pytest.fixture
def httpbin_ca_bundle(monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", os.environ["CERTIFICATE"])
