"""The SDK's asynchronous client, which has code of its own."""

import asyncio
import uuid

from azure.cosmos import PartitionKey, exceptions
from azure.cosmos.aio import CosmosClient

from harness import case, endpoint, equal, key


async def use():
    async with CosmosClient(endpoint, key) as client:
        db = await client.create_database(f"py{uuid.uuid4().hex}")
        c = await db.create_container("items", PartitionKey("/pk"))
        await asyncio.gather(*(c.create_item({"id": str(i), "pk": "abc"[i % 3], "n": i}) for i in range(30)))
        equal((await c.read_item("4", "b"))["n"], 4)
        equal([n async for n in c.query_items("SELECT VALUE c.n FROM c WHERE c.n < 3 ORDER BY c.n DESC")], [2, 1, 0])
        equal([n async for n in c.query_items("SELECT VALUE COUNT(1) FROM c", partition_key="a")], [10])
        equal(len([i async for i in c.query_items_change_feed(start_time="Beginning")]), 30)
        results = await c.execute_item_batch([("upsert", ({"id": "x", "pk": "a", "n": 1},)), ("delete", ("0",))], "a")
        equal([r["statusCode"] for r in results], [201, 204])
        try:
            await c.read_item("0", "a")
            raise AssertionError("a deleted item is read")
        except exceptions.CosmosResourceNotFoundError:
            pass
        await client.delete_database(db.id)


@case("the asynchronous client")
def _():
    asyncio.run(use())
