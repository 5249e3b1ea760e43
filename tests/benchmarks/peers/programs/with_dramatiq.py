"""dramatiq, on Redis or RabbitMQ by the URL's scheme: its default middleware, results off, late ack as ever."""

from __future__ import annotations

import os

import dramatiq

from tests.benchmarks.peers.programs import body

url = os.environ.get(body.BROKER, "")
if url.startswith("amqp"):
    from dramatiq.brokers.rabbitmq import RabbitmqBroker

    broker = RabbitmqBroker(url=url)
else:
    from dramatiq.brokers.redis import RedisBroker

    broker = RedisBroker(url=url)
dramatiq.set_broker(broker)
_noop = dramatiq.actor(body.noop, actor_name="noop")
_tell = dramatiq.actor(body.tell, actor_name="tell")
send_tell = _tell.send


def send(count: int) -> None:
    """Add so many no-op jobs, one by one."""
    for number in range(count):
        _noop.send(number)
