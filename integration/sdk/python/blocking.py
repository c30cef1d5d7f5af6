"""The SDK's asynchronous client with the calls of the other one, so that the cases run with both: whatever it answers is
waited for, on an event loop in a thread of its own. Several threads may call it at once, and their requests run beside each other."""

import asyncio
import atexit
import inspect
import threading

from azure.cosmos import aio

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()


def wait(awaitable):
    """wait returns what an awaitable ends with."""

    async def run():
        return await awaitable

    return asyncio.run_coroutine_threadsafe(run(), loop).result()


def blocking(value):
    """blocking returns a value as the client that is not asynchronous would give it."""
    if inspect.isawaitable(value):
        return blocking(wait(value))
    if hasattr(value, "__aiter__"):
        return Steps(value)
    if inspect.isroutine(value):
        return lambda *args, **options: blocking(value(*map(bare, args), **options))
    if type(value).__module__.startswith("azure.cosmos.aio."):
        return Blocking(value)
    return value


def bare(value):
    return value.of if isinstance(value, Blocking) else value


class Blocking:
    """Blocking stands for an object of azure.cosmos.aio."""

    def __init__(self, of):
        self.of = of

    def __getattr__(self, name):
        return blocking(getattr(self.of, name))


class Steps(Blocking):
    """Steps stands for what is iterated, items or pages."""

    def __iter__(self):
        return self

    def __next__(self):
        try:
            return blocking(wait(self.of.__anext__()))
        except StopAsyncIteration:
            raise StopIteration from None


def client(*args, **options):
    """client returns a client that is open until the program ends."""

    async def opened():
        return await aio.CosmosClient(*args, **options).__aenter__()

    made = wait(opened())
    atexit.register(lambda: wait(made.close()))
    return Blocking(made)
