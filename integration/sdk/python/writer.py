"""Writes batches under keys until its standard input ends, reads them again in three ways, and prints the number of each
round of them. It tries again what did not come back, unless MILLRACE_UNBROKEN says that nothing may fail."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

from azure.core.exceptions import AzureError

from harness import across, client, equal

c = client.get_database_client(os.environ["MILLRACE_DATABASE"]).get_container_client("items")
keys = os.environ["MILLRACE_KEYS"].split(",")
unbroken = bool(os.environ.get("MILLRACE_UNBROKEN"))


def insist(call):
    while True:
        try:
            return call()
        except AzureError as error:
            status = getattr(error, "status_code", None) or 503
            if unbroken or status < 500 and status not in (408, 429, 449):
                raise


def write(key, n):
    results = c.execute_item_batch([("upsert", ({"id": id, "pk": key, "n": n},)) for id in ("head", f"item{n}")], key)
    assert all(r["statusCode"] in (200, 201) for r in results), results


places, seen = {}, {}


def follow(key):
    """follow reads the changes of a key to their end. The feed of all keys has none while others write."""
    start = {"continuation": places[key]} if key in places else {"start_time": "Beginning"}
    for i in c.query_items_change_feed(partition_key=key, **start):
        seen[key, i["id"]] = i["n"]
    places[key] = c.client_connection.last_response_headers["etag"]


heads = {
    "query": "SELECT VALUE c.n FROM c WHERE c.id = 'head' AND ARRAY_CONTAINS(@keys, c.pk) ORDER BY c.pk",
    "parameters": [{"name": "@keys", "value": keys}], "max_item_count": 2,
}  # fmt: skip
end = threading.Thread(target=sys.stdin.read, daemon=True)
end.start()
n = 0
with ThreadPoolExecutor(len(keys)) as threads:
    while end.is_alive():
        n += 1
        list(threads.map(lambda key: insist(lambda: write(key, n)), keys))
        equal(list(threads.map(lambda key: insist(lambda: c.read_item("head", key))["n"], keys)), [n] * len(keys), "heads read")
        equal(insist(lambda: list(c.query_items(**heads, **across))), [n] * len(keys), "heads found")
        for key in keys:
            insist(lambda: follow(key))
        print(n, flush=True)
for key in keys:
    insist(lambda: follow(key))
equal(seen, {(key, id): i for key in keys for id, i in [("head", n), *((f"item{i}", i) for i in range(1, n + 1))]}, "the change feed has shown")
