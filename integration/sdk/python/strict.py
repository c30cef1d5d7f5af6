"""Queries over several partition keys of a server that leaves them to plans, as Cosmos DB
does: the SDK fetches the plan by itself."""

import os

from harness import across, client, equal, refused

items = client.get_database_client(os.environ["MILLRACE_DATABASE"]).get_container_client("items")
for text, want in (
    ("SELECT VALUE COUNT(1) FROM c", [12]),
    ("SELECT VALUE c.n FROM c ORDER BY c.n DESC OFFSET 1 LIMIT 3", [10, 9, 8]),
    ("SELECT TOP 2 VALUE c.n FROM c ORDER BY c.n", [0, 1]),
):
    equal(list(items.query_items(text, max_item_count=2, **across)), want, text)
refused(400, items.query_items, "SELECT * FROM c ORDER BY c.n + 1", **across)
refused(400, items.query_items, "SELECT * FROM c ORDER BY c.n, c.pk", **across)
