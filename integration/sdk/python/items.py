from azure.core import MatchConditions
from azure.cosmos import PartitionKey, ThroughputProperties, exceptions

from harness import CosmosClient, across, asynchronous, case, client, container, database, endpoint, equal, eventually, partitions, read_only_key, refused


@case("account")
def _():
    account = client._get_database_account() if asynchronous else client.get_database_account()
    equal(account.ConsistencyPolicy["defaultConsistencyLevel"], "Session")


@case("databases and containers")
def _():
    db = database()
    made = db.create_container(
        "items",
        PartitionKey(["/tenant", "/user"], kind="MultiHash"),
        default_ttl=3600,
        unique_key_policy={"uniqueKeys": [{"paths": ["/email"]}]},
    )
    found = made.read()
    equal(found["partitionKey"]["paths"], ["/tenant", "/user"])
    equal(found["partitionKey"]["version"], 2)
    equal(found["defaultTtl"], 3600)
    equal(found["uniqueKeyPolicy"]["uniqueKeys"], [{"paths": ["/email"]}])
    db.replace_container(made, PartitionKey(["/tenant", "/user"], kind="MultiHash"), default_ttl=-1)
    equal(made.read()["defaultTtl"], -1)
    db.create_container_if_not_exists("others", PartitionKey("/pk"))
    db.create_container_if_not_exists("others", PartitionKey("/pk"))
    equal(sorted(c["id"] for c in db.list_containers()), ["items", "others"])
    equal([c["id"] for c in db.query_containers("SELECT * FROM c WHERE c.id = 'others'")], ["others"])
    refused(409, db.create_container, "others", PartitionKey("/pk"))
    refused(409, client.create_database, db.id)
    query = "SELECT * FROM d WHERE d.id = @id"
    equal([d["id"] for d in client.query_databases(query, parameters=[{"name": "@id", "value": db.id}])], [db.id])
    assert db.id in [d["id"] for d in client.list_databases()], "a database that is not listed"
    equal(len(list(made.read_feed_ranges())), partitions)
    db.delete_container("others")
    refused(404, db.get_container_client("others").read)
    client.delete_database(db.id)
    refused(404, db.read)


def under(name, value):
    @case(f"items under a key that is {name}")
    def _():
        c = container()
        item = f"é 'q' \"d\" + {name}"
        created = c.create_item({"id": item, "pk": value, "n": 1})
        equal(created["n"], 1)
        headers = created.get_response_headers()
        assert float(headers["x-ms-request-charge"]) > 0 and headers["x-ms-activity-id"], "charge and activity"
        equal(headers["etag"], created["_etag"])
        equal(c.read_item(item, value)["n"], 1)
        refused(409, c.create_item, {"id": item, "pk": value})
        equal(c.replace_item(item, {"id": item, "pk": value, "n": 2})["n"], 2)
        equal(c.upsert_item({"id": item, "pk": value, "n": 3})["n"], 3)
        equal(c.patch_item(item, value, [{"op": "incr", "path": "/n", "value": 4}])["n"], 7)
        # The SDK takes None for no key at all, and sends the query over all of them.
        where = across if value is None else {"partition_key": value}
        equal([r["n"] for r in c.query_items("SELECT c.n FROM c", **where)], [7])
        c.delete_item(item, value)
        refused(404, c.read_item, item, value)


for name, value in [
    ("text", "a"), ("number", 1), ("negative fraction", -1.5), ("number as text", "1"), ("bool", True), ("null", None),
    ("empty text", ""), ("non-ASCII", "Zoë ☃"),
]:  # fmt: skip
    under(name, value)


@case("conditions of etags")
def _():
    c = container()
    first = c.create_item({"id": "1", "pk": "a", "n": 1})
    second = c.upsert_item({"id": "1", "pk": "a", "n": 2})
    stale = {"etag": first["_etag"], "match_condition": MatchConditions.IfNotModified}
    refused(412, c.replace_item, "1", {"id": "1", "pk": "a", "n": 3}, **stale)
    refused(412, c.upsert_item, {"id": "1", "pk": "a", "n": 3}, **stale)
    refused(412, c.delete_item, "1", "a", **stale)
    refused(412, c.patch_item, "1", "a", [{"op": "incr", "path": "/n", "value": 1}], **stale)
    equal(c.read_item("1", "a")["n"], 2)
    fresh = {"etag": second["_etag"], "match_condition": MatchConditions.IfNotModified}
    equal(c.replace_item("1", {"id": "1", "pk": "a", "n": 3}, **fresh)["n"], 3)


@case("patch")
def _():
    c = container()
    c.create_item({"id": "1", "pk": "a", "n": 1, "tags": ["x"], "old": True})
    patched = c.patch_item("1", "a", [
        {"op": "add", "path": "/tags/-", "value": "y"}, {"op": "set", "path": "/name", "value": "é"}, {"op": "incr", "path": "/n", "value": -3},
        {"op": "remove", "path": "/old"}, {"op": "move", "from": "/name", "path": "/title"}, {"op": "replace", "path": "/tags/0", "value": "z"},
    ])  # fmt: skip
    equal({k: v for k, v in patched.items() if not k.startswith("_")}, {"id": "1", "pk": "a", "n": -2, "tags": ["z", "y"], "title": "é"})
    refused(412, c.patch_item, "1", "a", [{"op": "incr", "path": "/n", "value": 1}], filter_predicate="FROM c WHERE c.n > 0")
    refused(400, c.patch_item, "1", "a", [{"op": "remove", "path": "/missing"}])
    equal(c.read_item("1", "a")["n"], -2)


@case("batch")
def _():
    c = container()
    results = c.execute_item_batch([
        ("create", ({"id": "1", "pk": "a", "n": 1},)), ("upsert", ({"id": "2", "pk": "a", "n": 2},)), ("read", ("1",)),
        ("patch", ("2", [{"op": "incr", "path": "/n", "value": 5}])), ("replace", ("1", {"id": "1", "pk": "a", "n": 9})), ("delete", ("2",)),
    ], "a")  # fmt: skip
    equal([r["statusCode"] for r in results], [201, 201, 200, 200, 200, 204])
    equal(results[3]["resourceBody"]["n"], 7)
    try:
        c.execute_item_batch([("upsert", ({"id": "3", "pk": "a"},)), ("create", ({"id": "1", "pk": "a"},))], "a")
        raise AssertionError("a batch with a conflict is taken")
    except exceptions.CosmosBatchOperationError as error:
        equal(error.error_index, 1)
        equal([r["statusCode"] for r in error.operation_responses], [424, 409])
    refused(404, c.read_item, "3", "a")


@case("time to live")
def _():
    c = container(default_ttl=-1)
    c.create_item({"id": "short", "pk": "a", "ttl": 1})
    c.create_item({"id": "long", "pk": "a"})
    eventually("the item has expired", lambda: [i["id"] for i in c.read_all_items()] == ["long"])
    refused(404, c.read_item, "short", "a")


@case("a key that may read only")
def _():
    c = container()
    c.create_item({"id": "1", "pk": "a"})
    reader = CosmosClient(endpoint, read_only_key).get_database_client(c.container_link.split("/")[1]).get_container_client(c.id)
    equal(reader.read_item("1", "a")["id"], "1")
    equal([i["id"] for i in reader.query_items("SELECT * FROM c", **across)], ["1"])
    refused(403, reader.upsert_item, {"id": "1", "pk": "a"})
    refused(403, reader.delete_item, "1", "a")


@case("many items by their keys")
def _():
    c = container()
    for i in range(60):
        c.create_item({"id": str(i), "pk": str(i % 7), "n": i})
    found = c.read_items([(str(i), str(i % 7)) for i in range(0, 60, 2)] + [("none", "0")])
    equal(sorted(i["n"] for i in found), list(range(0, 60, 2)))


@case("throughput")
def _():
    c = container()
    equal(c.get_throughput().offer_throughput, 400)
    equal(c.replace_throughput(500).offer_throughput, 500)
    equal(c.get_throughput().offer_throughput, 500)
    scaled = container(offer_throughput=ThroughputProperties(auto_scale_max_throughput=4000))
    equal(scaled.get_throughput().auto_scale_max_throughput, 4000)
    refused(400, container, offer_throughput=399)


@case("all items of a partition key are deleted at once")
def _():
    c = container()
    for i in range(120):
        c.create_item({"id": str(i), "pk": "a"})
    c.create_item({"id": "1", "pk": "b"})
    c.delete_all_items_by_partition_key("a")
    equal([(item["pk"], item["id"]) for item in c.read_all_items()], [("b", "1")])


@case("there are no conflicts")
def _():
    c = container()
    equal(list(c.list_conflicts()), [])
    equal(list(c.query_conflicts("SELECT * FROM c", **across)), [])
    refused(404, c.get_conflict, "none", "a")
    refused(404, c.delete_conflict, "none", "a")


@case("what is not served says so")
def _():
    c = container()
    refused(501, c.scripts.create_stored_procedure, {"id": "s", "body": "function () {}"})
