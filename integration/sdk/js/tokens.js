import { assert, ChangeFeedStartFrom, container, CosmosClient, endpoint, partitions, PermissionMode, refused, test } from "./harness.js";

/** permitted makes a container with two items and a client that has a token for a part of it, and nothing else. */
async function permitted(permission, by = (link, token) => ({ resourceTokens: { [link]: token } })) {
  const c = await container();
  await c.items.create({ id: "1", pk: "a" });
  await c.items.create({ id: "1", pk: "b" });
  const link = `dbs/${c.database.id}/colls/${c.id}`;
  const { user } = await c.database.users.upsert({ id: "ann" });
  const { resource } = await user.permissions.upsert({ id: "p", resource: link, ...permission(c) });
  assert.ok(resource._token.startsWith("type=resource&ver=1&sig="));
  const client = new CosmosClient({ endpoint, ...by(link, resource._token, resource) });
  return { c, user, resource, client, mine: client.database(c.database.id).container(c.id) };
}

test("a token that reads a container", async () => {
  const { c, client, mine } = await permitted(() => ({ permissionMode: PermissionMode.Read }));
  assert.equal((await mine.item("1", "a").read()).resource.pk, "a");
  assert.equal((await mine.read()).resource.id, "items");
  assert.equal((await mine.items.readAll().fetchAll()).resources.length, 2);
  const { resources } = await mine.items.query("SELECT VALUE c.pk FROM c ORDER BY c.pk").fetchAll();
  assert.deepEqual(resources, ["a", "b"]);
  const changes = mine.items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Beginning() });
  let seen = 0;
  for (let i = 0; i < 2 * partitions; i++) seen += (await changes.readNext()).count; // a page is of one range
  assert.equal(seen, 2);
  await refused(403, mine.items.create({ id: "2", pk: "a" }));
  await refused(403, mine.item("1", "a").delete());
  await refused(403, mine.delete());
  client.dispose();
  await c.database.delete();
}, { since: 4 });

test("a token for a partition key", async () => {
  const { c, client, mine } = await permitted(() => ({ permissionMode: PermissionMode.All, resourcePartitionKey: ["a"] }));
  await mine.items.create({ id: "2", pk: "a" });
  await mine.items.upsert({ id: "2", pk: "a", n: 1 });
  await mine.item("2", "a").patch([{ op: "incr", path: "/n", value: 1 }]);
  assert.equal((await mine.item("2", "a").read()).resource.n, 2);
  const answer = await mine.items.batch([{ operationType: "Create", resourceBody: { id: "3", pk: "a" } }], "a");
  assert.equal(answer.code, 200);
  const { resources } = await mine.items.query("SELECT VALUE c.id FROM c", { partitionKey: "a" }).fetchAll();
  assert.deepEqual(resources.sort(), ["1", "2", "3"]);
  await refused(403, mine.items.create({ id: "2", pk: "b" }));
  await refused(403, mine.item("1", "b").read());
  await refused(403, mine.items.query("SELECT * FROM c").fetchAll());
  await refused(403, mine.items.readAll().fetchAll());
  client.dispose();
  await c.database.delete();
});

test("a token for an item, by a feed of permissions", async () => {
  const { c, client, mine } = await permitted(
    (c) => ({ permissionMode: PermissionMode.All, resource: c.item("1", "a").url, resourcePartitionKey: ["a"] }),
    (_, __, permission) => ({ permissionFeed: [permission] }),
  );
  assert.equal((await mine.item("1", "a").read()).resource.pk, "a");
  await mine.item("1", "a").replace({ id: "1", pk: "a", n: 1 });
  await refused(403, mine.item("1", "b").read());
  await mine.item("1", "a").delete();
  client.dispose();
  await c.database.delete();
});

test("users and permissions", async () => {
  const { c, user, client, mine } = await permitted(() => ({ permissionMode: PermissionMode.Read }));
  const { database } = c;
  await refused(409, database.users.create({ id: "ann" }));
  assert.deepEqual((await database.users.readAll().fetchAll()).resources.map((u) => u.id), ["ann"]);
  const { resource: renamed } = await user.replace({ id: "eve" });
  assert.equal(renamed.id, "eve");
  await refused(404, user.read());
  await refused(401, mine.read());
  const eve = database.user("eve");
  const query = { query: "SELECT * FROM p WHERE p.id = @id", parameters: [{ name: "@id", value: "p" }] };
  assert.equal((await eve.permissions.query(query).fetchAll()).resources.length, 1);
  const permission = eve.permission("p");
  const { resource: replaced } = await permission.replace({ id: "q", permissionMode: PermissionMode.All, resource: c.url });
  assert.equal(replaced.permissionMode, PermissionMode.All);
  await eve.permission("q").delete();
  await refused(404, eve.permission("q").read());
  await eve.delete();
  assert.equal((await database.users.readAll().fetchAll()).resources.length, 0);
  client.dispose();
  await database.delete();
});
