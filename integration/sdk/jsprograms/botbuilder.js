// CosmosDbPartitionedStorage, the storage of Microsoft's Bot Framework. It creates its container; its database must exist.
import { ActivityTypes, ConversationState, TestAdapter, UserState } from "botbuilder";
import { CosmosDbPartitionedStorage } from "botbuilder-azure";
import { assert, client, databaseName, endpoint, key, refused, stored, test } from "./harness.js";

const open = (databaseId, more = {}) => new CosmosDbPartitionedStorage({ cosmosDbEndpoint: endpoint, authKey: key, databaseId, containerId: "bots", ...more });

/** database makes a database for the case alone. */
async function database() {
  const { database } = await client.databases.create({ id: databaseName() });
  return database.id;
}

test("botbuilder: read and write", async () => {
  const id = await database();
  const storage = open(id);
  assert.deepEqual(await storage.read(["a"]), {});
  await storage.write({ a: { n: 1, list: [1, { x: null }] }, b: { text: "Zoë ☃" } });
  const read = await open(id).read(["a", "missing", "b"]);
  assert.deepEqual(Object.keys(read).sort(), ["a", "b"]);
  const { eTag, ...a } = read.a;
  assert.deepEqual(a, { n: 1, list: [1, { x: null }] });
  assert.equal(read.b.text, "Zoë ☃");
  assert.ok(eTag && read.b.eTag, "an etag of each");
  const { resource } = await client.database(id).container("bots").read();
  assert.deepEqual(resource.partitionKey.paths, ["/id"]);
  assert.deepEqual(await stored(id, "bots"), [
    { id: "a", realId: "a", document: { n: 1, list: [1, { x: null }] } },
    { id: "b", realId: "b", document: { text: "Zoë ☃" } },
  ]);
});

test("botbuilder: etags and conflicts", async () => {
  const storage = open(await database());
  await storage.write({ a: { n: 1 } });
  const { a: old } = await storage.read(["a"]);
  await storage.write({ a: { ...old, n: 2 } });
  const { a: now } = await storage.read(["a"]);
  assert.equal(now.n, 2);
  assert.notEqual(now.eTag, old.eTag);
  await refused(412, storage.write({ a: { ...old, n: 3 } }));
  assert.deepEqual((await storage.read(["a"])).a, now);
  await storage.write({ a: { n: 4, eTag: "*" } });
  await storage.write({ b: { n: 1 } });
  // Of two writers with one etag, one writes.
  const { a: seen } = await storage.read(["a"]);
  const both = await Promise.allSettled([5, 6].map((n) => storage.write({ a: { ...seen, n } })));
  assert.deepEqual(both.map((b) => b.status).sort(), ["fulfilled", "rejected"]);
  assert.equal(both.find((b) => b.status === "rejected").reason.code, 412);
  assert.equal((await storage.read(["a"])).a.n, both[0].status === "fulfilled" ? 5 : 6);
});

test("botbuilder: delete", async () => {
  const id = await database();
  const storage = open(id);
  await storage.write({ a: { n: 1 }, b: { n: 2 } });
  await storage.delete(["a", "missing"]);
  assert.deepEqual(Object.keys(await storage.read(["a", "b"])), ["b"]);
  assert.deepEqual((await stored(id, "bots")).map((s) => s.id), ["b"]);
});

test("botbuilder: keys with all kinds of letters", async () => {
  const id = await database();
  for (const more of [{}, { compatibilityMode: false, keySuffix: "_v2" }]) {
    const keys = ["?#*test", "a/b\\c", "msteams/conversations/19:é@thread", "a b"];
    if (more.keySuffix) keys.push("k".repeat(300)); // otherwise it hashes the key with a new salt each time, and never finds it again
    const storage = open(id, { containerId: more.keySuffix ? "suffixed" : "bots", ...more });
    await storage.write(Object.fromEntries(keys.map((k, n) => [k, { n }])));
    const read = await storage.read(keys);
    assert.deepEqual(keys.map((k) => read[k]?.n), keys.map((_, n) => n));
    await storage.delete(keys.slice(1));
    assert.deepEqual(Object.keys(await storage.read(keys)), keys.slice(0, 1));
  }
  const [{ id: suffixed }] = await stored(id, "suffixed");
  assert.ok(suffixed.endsWith("_v2"), suffixed);
});

test("botbuilder: how deep a state is", async () => {
  const storage = open(await database());
  const deep = (levels) => (levels === 0 ? "bottom" : { down: deep(levels - 1) });
  const depth = (v) => (typeof v === "object" ? 1 + depth(v.down) : 0);
  await storage.write({ a: deep(100) });
  assert.equal(depth((await storage.read(["a"])).a), 100);
  const error = await refused(400, storage.write({ a: deep(200) }));
  assert.match(error.message, /Maximum nesting depth of 127 exceeded/);
});

test("botbuilder: a database that is not there", async () => {
  await refused(404, open(databaseName()).read(["a"]));
});

test("botbuilder: a bot that counts and remembers", async () => {
  const id = await database();
  const bot = () => {
    const storage = open(id);
    const conversation = new ConversationState(storage), user = new UserState(storage);
    const turns = conversation.createProperty("turns"), name = user.createProperty("name");
    return new TestAdapter(async (context) => {
      if (context.activity.type !== ActivityTypes.Message) return;
      const n = (await turns.get(context, 0)) + 1;
      const known = await name.get(context, "");
      await turns.set(context, n);
      if (!known) await name.set(context, context.activity.text);
      await context.sendActivity(`${n}: ${known || "who?"}`);
      await conversation.saveChanges(context);
      await user.saveChanges(context);
    });
  };
  await bot().send("Ann").assertReply("1: who?").send("again").assertReply("2: Ann").startTest();
  await bot().send("after a restart").assertReply("3: Ann").startTest(); // another process, as it were
  const states = await stored(id, "bots");
  assert.deepEqual(states.map((s) => [s.realId, s.document.turns ?? s.document.name]), [["test/conversations/Convo1/", 3], ["test/users/user1/", "Ann"]]);
});
