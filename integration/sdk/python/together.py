"""Requests beside each other: many at once by the asynchronous client itself, and by threads with the other one."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from azure.cosmos import PartitionKey, aio

from harness import across, asynchronous, case, client, container, database, endpoint, equal, key


@case("threads that share a client")
def _():
    c = container()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda i: c.create_item({"id": str(i), "pk": "abc"[i % 3], "n": i}), range(60)))
        equal([i["n"] for i in threads.map(lambda i: c.read_item(str(i), "abc"[i % 3]), range(60))], list(range(60)))
    equal(list(c.query_items("SELECT VALUE SUM(c.n) FROM c", **across)), [1770])


async def gathered(database):
    async with aio.CosmosClient(endpoint, key) as own:
        c = await own.get_database_client(database).create_container("items", PartitionKey("/pk"))
        await asyncio.gather(*(c.create_item({"id": str(i), "pk": "abc"[i % 3], "n": i}) for i in range(60)))
        read = await asyncio.gather(*(c.read_item(str(i), "abc"[i % 3]) for i in range(60)))
        equal([i["n"] for i in read], list(range(60)))
        equal([n async for n in c.query_items("SELECT VALUE c.n FROM c WHERE c.n < 3 ORDER BY c.n DESC")], [2, 1, 0])
        equal(len([i async for i in c.query_items_change_feed(start_time="Beginning")]), 60)


if asynchronous:

    @case("requests that are gathered")
    def _():
        db = database()
        asyncio.run(gathered(db.id))
        client.delete_database(db.id)
