"""Users, permissions, and clients that have a resource token and no key."""

from azure.cosmos import PartitionKey, documents

from harness import CosmosClient, across, case, database, endpoint, equal, refused


@case("a token for a partition key")
def _():
    db = database()
    c = db.create_container("items", PartitionKey("/pk"))
    for pk in ("a", "b"):
        c.create_item({"id": "1", "pk": pk})
    user = db.create_user({"id": "ann"})
    permission = user.create_permission(
        {"id": "p", "permissionMode": documents.PermissionMode.All, "resource": c.container_link, "resourcePartitionKey": ["a"]}
    )
    token = permission.properties["_token"]
    mine = CosmosClient(endpoint, {c.container_link: token}).get_database_client(db.id).get_container_client(c.id)
    equal(mine.read_item("1", "a")["pk"], "a")
    mine.create_item({"id": "2", "pk": "a"})
    equal([i["id"] for i in mine.query_items("SELECT c.id FROM c ORDER BY c.id", partition_key="a")], ["1", "2"])
    refused(403, mine.read_item, "1", "b")
    refused(403, mine.create_item, {"id": "2", "pk": "b"})
    refused(403, mine.query_items, "SELECT * FROM c", **across)
    user.delete_permission("p")
    refused(401, mine.read_item, "1", "a")


@case("users and permissions")
def _():
    db = database()
    c = db.create_container("items", PartitionKey("/pk"))
    user = db.upsert_user({"id": "ann"})
    refused(409, db.create_user, {"id": "ann"})
    user.upsert_permission({"id": "p", "permissionMode": "Read", "resource": c.container_link})
    equal([p["id"] for p in user.list_permissions()], ["p"])
    equal([p["id"] for p in user.query_permissions("SELECT * FROM p WHERE p.id = 'p'")], ["p"])
    replaced = user.replace_permission("p", {"id": "p", "permissionMode": "All", "resource": c.container_link})
    equal(replaced.permission_mode, "All")
    db.replace_user("ann", {"id": "eve"})
    equal([u["id"] for u in db.list_users()], ["eve"])
    equal([u["id"] for u in db.query_users("SELECT * FROM u WHERE u.id = 'eve'")], ["eve"])
    db.delete_user("eve")
    refused(404, db.get_user_client("eve").read)
