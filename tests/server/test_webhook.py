"""Messages to a receiver that takes them, is slow, fails, redirects, or is not there: they never hold anybody up."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

import pytest

from foredraft.errors import ConfigError
from foredraft.server import webhook
from foredraft.server.alerts import AlertConfig
from foredraft.server.webhook import MAX_WAITING, Webhook
from receiver import SECRET, receiving


async def run(url: str, count: int = 1, until: Callable[[list[str]], bool] | None = None) -> list[str]:
    """Send messages and wait until they are done with; their outcomes, in order."""
    outcomes: list[str] = []
    hook = Webhook(url, outcomes.append, backoff_s=(0.01, 0.01))
    for number in range(count):
        hook.send({"number": number})
    task = asyncio.create_task(hook.run())
    async with asyncio.timeout(30):
        while not (until(outcomes) if until else len(outcomes) == count):
            await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return outcomes


def test_messages_arrive_in_order():
    with receiving(204) as receiver:
        assert asyncio.run(run(receiver.url, 3)) == ["sent"] * 3
    assert receiver.messages == [(SECRET, {"number": number}) for number in range(3)]


def test_a_receiver_that_fails_for_a_while_is_asked_again():
    with receiving(503, 429, 200) as receiver:
        assert asyncio.run(run(receiver.url)) == ["sent"]
    assert len(receiver.messages) == 3


def test_attempts_are_bounded_and_secrets_stay_out_of_the_log(caplog):
    caplog.set_level(logging.DEBUG, "foredraft")
    with receiving(500) as receiver:
        assert asyncio.run(run(receiver.url, 2)) == ["failed", "failed"]
    assert len(receiver.messages) == 6
    records = [record for record in caplog.records if record.name == "foredraft"]
    assert [record.fields for record in records] == [
        {"receiver": "http://127.0.0.1", "outcome": "failed", "fault": "status 500"}
    ] * 2
    for secret in ("S3CRET", "hush", "user", "pass"):
        assert secret not in " ".join(f"{record.getMessage()} {record.fields}" for record in records)


@pytest.mark.parametrize("status", [301, 302, 307, 308, 400, 401, 404])
def test_redirects_are_not_followed_and_what_is_refused_is_not_repeated(status):
    with receiving(status) as receiver:
        assert asyncio.run(run(receiver.url)) == ["failed"]
    assert receiver.messages == [(SECRET, {"number": 0})]


def test_nobody_there(caplog):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}{SECRET}"
        assert asyncio.run(run(url)) == ["failed"]
    assert caplog.records[-1].fields["fault"] == "ConnectError"


def test_a_receiver_that_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(webhook, "TIMEOUT_S", 0.05)
    with receiving(None, 200) as receiver:
        assert asyncio.run(run(receiver.url)) == ["sent"]
    assert len(receiver.messages) == 2


def test_what_nobody_takes_is_dropped_at_once_and_the_end_does_not_wait():
    with receiving(None) as receiver:
        count = MAX_WAITING + 5
        outcomes = asyncio.run(run(receiver.url, count, lambda outcomes: bool(receiver.messages)))
    assert outcomes == ["dropped"] * 5
    assert len(receiver.messages) == 1


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.com/hook",
        "gopher://example.com",
        "javascript:alert(1)",
        "example.com/hook",
        "//example.com/hook",
        "http://",
        "https:///hook",
        "http://:80/",
        "http://example.com:99999/",
        "http://example.com:0/",
        "http://[::1/hook",
        "http://example.com/a b",
        "http://example.com/\r\nHost: other",
        "",
    ],
)
def test_only_addresses_of_web_servers_are_taken(url):
    with pytest.raises(ConfigError, match="webhook_url is not the address of a web server; allowed is http"):
        AlertConfig(webhook_url=url)


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/hook", "https://hooks.example.com/a?b=c", "http://[::1]:9000/"])
def test_such_addresses_are_taken(url):
    assert AlertConfig(webhook_url=url).webhook_url == url


def test_a_refused_address_is_not_shown():
    with pytest.raises(ConfigError) as caught:
        AlertConfig(webhook_url="ftp://user:hush@example.com/T0PS3CRET")
    assert "hush" not in str(caught.value)
    assert "S3CRET" not in str(caught.value)
