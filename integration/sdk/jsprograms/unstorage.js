// The storage of Nitro and Nuxt, unstorage, with its driver azure-cosmos.
import { createStorage, prefixStorage } from "unstorage";
import azureCosmos from "unstorage/drivers/azure-cosmos";
import { assert, client, databaseName, endpoint, key, refused, stored, test } from "./harness.js";

const open = (databaseName, more = {}) => createStorage({ driver: azureCosmos({ endpoint, accountKey: key, databaseName, containerName: "kept", ...more }) });

test("unstorage: set, get, has and remove", async () => {
  const database = databaseName();
  const storage = open(database);
  assert.equal(await storage.getItem("a"), null);
  assert.equal(await storage.hasItem("a"), false);
  const values = { a: "text", "users:1": { name: "Zoë ☃", list: [1, null] }, n: 42, yes: true, empty: "" };
  for (const [k, v] of Object.entries(values)) await storage.setItem(k, v);
  const again = open(database);
  for (const [k, v] of Object.entries(values)) assert.deepEqual(await again.getItem(k), v, k);
  await storage.setItem("a", "another");
  assert.equal(await again.getItem("a"), "another");
  assert.equal(await again.hasItem("users:1"), true);
  assert.deepEqual(await prefixStorage(again, "users").getItem("1"), values["users:1"]);
  await storage.removeItem("users:1");
  assert.equal(await again.getItem("users:1"), null);
  assert.equal(await again.hasItem("users:1"), false);
  assert.deepEqual((await stored(database, "kept")).map((item) => item.id), ["a", "empty", "n", "yes"]);
});

test("unstorage: many items, bytes, and when they were written", async () => {
  const storage = open(databaseName());
  // Calls at the same time would each create the database, and all but one would be refused because it exists.
  assert.deepEqual(await storage.getItems(["k1"]), [{ key: "k1", value: null }]);
  const began = Date.now();
  await storage.setItems(Array.from({ length: 20 }, (_, n) => ({ key: `k${n}`, value: { n } })));
  assert.deepEqual(await storage.getItems(["k3", "k99", "k7"]), [{ key: "k3", value: { n: 3 } }, { key: "k99", value: null }, { key: "k7", value: { n: 7 } }]);
  await storage.setItemRaw("bytes", new Uint8Array([0, 255, 128]));
  assert.deepEqual([...(await storage.getItemRaw("bytes"))], [0, 255, 128]);
  const { mtime } = await storage.getMeta("k3");
  assert.ok(mtime instanceof Date && mtime.getTime() >= began && mtime.getTime() <= Date.now(), String(mtime));
  await refused(404, storage.removeItem("k99"));
});

test("unstorage: a container that is there", async () => {
  const database = databaseName();
  const { database: made } = await client.databases.create({ id: database });
  await made.containers.create({ id: "kept", partitionKey: { paths: ["/_partitionKey"] } });
  const storage = open(database);
  await storage.setItem("a", 1);
  assert.equal(await storage.getItem("a"), 1);
});

// The driver asks for keys by `SELECT { id } from c`, which is no query: a member of an object needs a value.
test("unstorage: keys and clear are refused", async () => {
  const database = databaseName();
  const storage = open(database);
  await storage.setItem("a", 1);
  await refused(400, storage.getKeys());
  await refused(400, storage.clear());
  assert.equal(await storage.getItem("a"), 1);
});
