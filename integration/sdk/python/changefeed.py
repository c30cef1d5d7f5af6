from datetime import datetime, timedelta, timezone

from harness import case, client, container, equal, eventually


def read(c, **options):
    """read returns what a reader gets, and where it goes on."""
    found = c.query_items_change_feed(**options)
    return sorted(f"{i['id']}={i['n']}" for i in found), c.client_connection.last_response_headers["etag"]


@case("change feed: latest versions")
def _():
    c = container()
    for pk, id, n in [("a", "1", 1), ("b", "2", 1), ("c", "3", 1), ("a", "1", 2)]:
        c.upsert_item({"id": id, "pk": pk, "n": n})
    shown, on = read(c, start_time="Beginning")
    equal(shown, ["1=2", "2=1", "3=1"])
    equal(read(c, continuation=on)[0], [])
    c.upsert_item({"id": "2", "pk": "b", "n": 2})
    c.delete_item("3", "c")
    c.upsert_item({"id": "4", "pk": "d", "n": 1})
    equal(read(c, continuation=on)[0], ["2=2", "4=1"])
    equal(read(c, start_time="Beginning", partition_key="b")[0], ["2=2"])
    hour = timedelta(hours=1)
    equal(read(c, start_time=datetime.now(timezone.utc) - hour)[0], ["1=2", "2=2", "4=1"])
    equal(read(c, start_time=datetime.now(timezone.utc) + hour)[0], [])
    # From a second on, behind the one in which everything else was written.
    before = max(i["_ts"] for i in c.read_all_items())
    eventually("a second has passed", lambda: c.upsert_item({"id": "5", "pk": "e", "n": 1})["_ts"] > before)
    late = datetime.fromtimestamp(c.read_item("5", "e")["_ts"], timezone.utc)
    equal(read(c, start_time=late)[0], ["5=1"])
    c.delete_item("5", "e")
    parts = []
    for part in c.read_feed_ranges():
        parts += read(c, start_time="Beginning", feed_range=part, max_item_count=1)[0]
    equal(sorted(parts), ["1=2", "2=2", "4=1"])


@case("change feed: all versions and deletes")
def _():
    c = container()
    now = c.query_items_change_feed(mode="AllVersionsAndDeletes")
    equal(list(now), [])
    on = client.client_connection.last_response_headers["etag"]
    c.create_item({"id": "1", "pk": "a", "n": 1})
    c.upsert_item({"id": "1", "pk": "a", "n": 2})
    c.delete_item("1", "a")
    seen = list(c.query_items_change_feed(mode="AllVersionsAndDeletes", continuation=on))
    equal([(s["metadata"]["operationType"], s.get("current", {}).get("n")) for s in seen], [("create", 1), ("replace", 2), ("delete", None)])
