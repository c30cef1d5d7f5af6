import { assert, client, container, CosmosClient, endpoint, eventually, key, partitions, readOnlyKey, refused, test } from "./harness.js";

test("account", async () => {
  const { resource } = await client.getDatabaseAccount();
  assert.equal(resource.consistencyPolicy, "Session");
  assert.equal(await client.getReadEndpoint(), endpoint + "/");
});

test("databases and containers", async () => {
  const c = await container({
    partitionKey: { paths: ["/tenant", "/user"], kind: "MultiHash", version: 2 },
    defaultTtl: 3600,
    uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/email"] }] },
  });
  const { resource } = await c.read();
  assert.deepEqual(resource.partitionKey.paths, ["/tenant", "/user"]);
  assert.equal(resource.partitionKey.version, 2);
  assert.equal(resource.defaultTtl, 3600);
  assert.deepEqual(resource.uniqueKeyPolicy.uniqueKeys, [{ paths: ["/email"] }]);
  const replaced = await c.replace({ ...resource, defaultTtl: -1 });
  assert.equal(replaced.resource.defaultTtl, -1);
  const database = c.database;
  const { resources: databases } = await client.databases.query({ query: "SELECT * FROM d WHERE d.id = @id", parameters: [{ name: "@id", value: database.id }] }).fetchAll();
  assert.deepEqual(databases.map((d) => d.id), [database.id]);
  assert.ok((await client.databases.readAll().fetchAll()).resources.some((d) => d.id === database.id));
  await database.containers.createIfNotExists({ id: "others", partitionKey: "/pk" });
  await database.containers.createIfNotExists({ id: "others", partitionKey: "/pk" });
  assert.deepEqual((await database.containers.readAll().fetchAll()).resources.map((c) => c.id).sort(), ["items", "others"]);
  const { resources: found } = await database.containers.query("SELECT c.id FROM c WHERE c.id = 'others'").fetchAll();
  assert.deepEqual(found.map((c) => c.id), ["others"]);
  await refused(409, database.containers.create({ id: "others", partitionKey: "/pk" }));
  const { resource: offer } = await database.container("others").readOffer();
  assert.equal(offer.content.offerThroughput, 400);
  const { resource: raised } = await client.offer(offer.id).replace({ ...offer, content: { offerThroughput: 900 } });
  assert.equal(raised.content.offerThroughput, 900);
  assert.equal((await database.container("others").readOffer()).resource.content.offerThroughput, 900);
  await database.container("others").delete();
  await refused(404, database.container("others").read());
  await database.delete();
  await refused(404, database.read());
});

for (const [name, value] of [
  ["text", "a"], ["number", 1], ["negative fraction", -1.5], ["number as text", "1"], ["bool", true], ["null", null],
  ["empty text", ""], ["non-ASCII", "Zoë ☃"],
]) {
  test(`items under a key that is ${name}`, async () => {
    const c = await container();
    const id = `é 'q' "d" + ${name}`;
    const created = await c.items.create({ id, pk: value, n: 1 });
    assert.equal(created.statusCode, 201);
    assert.ok(created.requestCharge > 0 && created.activityId && created.etag, "charge, activity and etag");
    assert.equal(created.resource._etag, created.etag);
    const item = c.item(id, value);
    const read = await item.read();
    assert.equal(read.resource.n, 1);
    assert.equal(read.etag, created.etag);
    await refused(409, c.items.create({ id, pk: value }));
    const replaced = await item.replace({ ...read.resource, n: 2 });
    assert.equal(replaced.resource.n, 2);
    const upserted = await c.items.upsert({ id, pk: value, n: 3 });
    assert.equal(upserted.statusCode, 200);
    assert.equal((await item.read()).resource.n, 3);
    assert.equal((await c.item(id, "another").read()).statusCode, 404);
    assert.equal((await item.delete()).statusCode, 204);
    assert.equal((await item.read()).statusCode, 404);
  });
}

test("items without a key and without an id", async () => {
  const c = await container();
  const { resource } = await c.items.create({ n: 1 });
  assert.ok(resource.id.length > 10, "the SDK makes an id");
  assert.equal((await c.item(resource.id, undefined).read()).resource.n, 1);
  assert.equal((await c.item(resource.id, null).read()).statusCode, 404);
});

test("conditions of etags", async () => {
  const c = await container();
  const created = await c.items.create({ id: "1", pk: "a", n: 1 });
  const item = c.item("1", "a");
  const replaced = await item.replace({ id: "1", pk: "a", n: 2 }, { accessCondition: { type: "IfMatch", condition: created.etag } });
  const stale = { accessCondition: { type: "IfMatch", condition: created.etag } };
  await refused(412, item.replace({ id: "1", pk: "a", n: 9 }, stale));
  await refused(412, c.items.upsert({ id: "1", pk: "a", n: 9 }, stale));
  await refused(412, item.patch([{ op: "set", path: "/n", value: 9 }], stale));
  await refused(412, item.delete(stale));
  const same = await item.read({ accessCondition: { type: "IfNoneMatch", condition: replaced.etag } });
  assert.equal(same.statusCode, 304);
  assert.equal((await item.read({ accessCondition: { type: "IfNoneMatch", condition: created.etag } })).resource.n, 2);
  await item.delete({ accessCondition: { type: "IfMatch", condition: replaced.etag } });
});

for (const [name, patch, want] of [
  ["set, add, replace, remove, increment and move", [
    { op: "set", path: "/name", value: "n" }, { op: "add", path: "/tags/1", value: "b" }, { op: "replace", path: "/deep/a~0b", value: 7 },
    { op: "remove", path: "/gone" }, { op: "incr", path: "/n", value: -2 }, { op: "move", from: "/deep/c~1d", path: "/moved" },
  ], { name: "n", tags: ["x", "b", "y"], deep: { "a~b": 7 }, n: 3, moved: 2 }],
  ["append to an array", [{ op: "add", path: "/tags/-", value: "z" }], { tags: ["x", "y", "z"] }],
  ["a condition that holds", { condition: "from c where c.n = 5 and c.tags[0] = \"x\"", operations: [{ op: "set", path: "/n", value: 6 }] }, { n: 6 }],
  ["a condition that does not", { condition: "from c where c.n > 5", operations: [{ op: "set", path: "/n", value: 6 }] }, 412],
  ["replace of what is not there", [{ op: "replace", path: "/none", value: 1 }], 400],
  ["remove of what is not there", [{ op: "remove", path: "/none" }], 400],
  ["the id", [{ op: "set", path: "/id", value: "2" }], 400],
  ["the key", [{ op: "set", path: "/pk", value: "b" }], 400],
  ["increment of a text", [{ op: "set", path: "/name", value: "t" }, { op: "incr", path: "/name", value: 1 }], 400],
  ["a move into itself", [{ op: "move", from: "/deep", path: "/deep/x" }], 400],
  ["eleven operations", Array.from({ length: 11 }, () => ({ op: "incr", path: "/n", value: 1 })), 400],
]) {
  test(`patch: ${name}`, async () => {
    const c = await container();
    const { etag } = await c.items.create({ id: "1", pk: "a", n: 5, tags: ["x", "y"], deep: { "a~b": 1, "c/d": 2 }, gone: true });
    const item = c.item("1", "a");
    if (typeof want === "number") {
      await refused(want, item.patch(patch));
      assert.equal((await item.read()).etag, etag, "a refused patch changes nothing");
      return;
    }
    const { resource } = await item.patch(patch);
    for (const [field, value] of Object.entries(want)) assert.deepEqual(resource[field], value, field);
    if (name.includes("remove")) assert.ok(!("gone" in resource));
  });
}

test("errors", async () => {
  const c = await container({ uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/email"] }] } });
  await c.items.create({ id: "1", pk: "a", email: "x" });
  const before = (await c.items.readAll().fetchAll()).resources;
  await refused(409, c.items.create({ id: "2", pk: "a", email: "x" }));
  await refused(404, c.item("none", "a").replace({ id: "none", pk: "a" }));
  await refused(404, c.item("none", "a").delete());
  await refused(404, c.item("none", "a").patch([{ op: "set", path: "/n", value: 1 }]));
  await refused(413, c.items.create({ id: "2", pk: "a", text: "x".repeat(2 << 20) }));
  await refused(400, c.item("1", "a").replace({ id: "1", pk: "b" }));
  await refused(400, c.items.query("SELECT FROM WHERE").fetchAll());
  await refused(400, c.items.query("SELECT NOPE(c) FROM c").fetchAll());
  await refused(404, c.database.container("missing").items.create({ id: "1", pk: "a" }));
  await refused(401, new CosmosClient({ endpoint, key: Buffer.from("a key that is not one of the server's").toString("base64") }).databases.readAll().fetchAll());
  const reader = new CosmosClient({ endpoint, key: readOnlyKey }).database(c.database.id).container("items");
  await refused(403, reader.items.upsert({ id: "1", pk: "a" }));
  assert.equal((await reader.item("1", "a").read()).resource.email, "x");
  assert.deepEqual((await c.items.readAll().fetchAll()).resources, before, "what was refused changed nothing");
  await refused(501, c.scripts.storedProcedure("none").execute("a", []));
});

test("time to live", async () => {
  const c = await container({ defaultTtl: -1 });
  await c.items.create({ id: "short", pk: "a", ttl: 1 });
  await c.items.create({ id: "long", pk: "a" });
  await eventually("the item is gone", async () => (await c.item("short", "a").read()).statusCode === 404);
  assert.deepEqual((await c.items.query("SELECT VALUE c.id FROM c").fetchAll()).resources, ["long"]);
  await c.items.create({ id: "short", pk: "a" });
});

test("hierarchical keys", async () => {
  const c = await container({ partitionKey: { paths: ["/tenant", "/user", "/session"], kind: "MultiHash", version: 2 } });
  for (let i = 0; i < 12; i++) await c.items.create({ id: `${i}`, tenant: "ab"[i % 2], user: "mno"[i % 3], session: i % 2 });
  assert.equal((await c.item("1", ["b", "n", 1]).read()).resource.user, "n");
  assert.equal((await c.item("1", ["b", "n", 0]).read()).statusCode, 404);
  const count = async (partitionKey) => (await c.items.query("SELECT * FROM c", { partitionKey }).fetchAll()).resources.length;
  assert.equal(await count(["a", "m", 0]), 2);
  assert.equal(await count(["a", "m"]), 2);
  assert.equal(await count(["b"]), 6);
  assert.equal((await c.items.query("SELECT * FROM c").fetchAll()).resources.length, 12);
});

test("read feed and feed ranges", async () => {
  const c = await container();
  for (let i = 0; i < 23; i++) await c.items.create({ id: `${i}`, pk: `p${i % 7}` });
  const all = [];
  const feed = c.items.readAll({ maxItemCount: 4 });
  while (feed.hasMoreResults()) {
    const { resources } = await feed.fetchNext();
    assert.ok((resources ?? []).length <= 4);
    all.push(...(resources ?? []).map((r) => r.id));
  }
  assert.equal(new Set(all).size, 23);
  assert.equal(all.length, 23);
  assert.equal((await c.readPartitionKeyRanges().fetchAll()).resources.length, partitions);
  assert.equal((await c.getFeedRanges()).length, partitions);
}, { since: 4 });
