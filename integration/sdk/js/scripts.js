// Stored procedures and triggers, as the SDK's own tests have them. The server runs scripts.
import { assert, container, refused, test } from "./harness.js";

/* global getContext, __ */

test("scripts: stored procedures are resources", async () => {
  const c = await container();
  const sprocs = c.scripts.storedProcedures;
  assert.deepEqual((await sprocs.readAll().fetchAll()).resources, []);
  const { resource: made } = await sprocs.create({ id: "sample sproc", body: "function () { const x = 10; }" });
  assert.equal(made.body, "function () { const x = 10; }");
  assert.equal((await sprocs.readAll().fetchAll()).resources.length, 1);
  const found = await sprocs.query({ query: "SELECT * FROM root r WHERE r.id = @id", parameters: [{ name: "@id", value: made.id }] }).fetchAll();
  assert.equal(found.resources.length, 1);
  const { resource: replaced } = await c.scripts.storedProcedure(made.id).replace({ id: made.id, body: function () { const x = 20; } });
  assert.match(replaced.body, /const x = 20/);
  assert.equal((await c.scripts.storedProcedure(made.id).read()).resource.body, replaced.body);
  await c.scripts.storedProcedure(made.id).delete();
  await refused(404, c.scripts.storedProcedure(made.id).read());
});

test("scripts: stored procedures run", async () => {
  const c = await container();
  const run = async (id, body, args = [], options = {}) => {
    await c.scripts.storedProcedures.create({ id, body });
    return c.scripts.storedProcedure(id).execute("a", args, options);
  };
  const counted = await run("1", function () {
    for (let i = 0; i < 1000; i++) {
      const item = getContext().getResponse().getBody();
      if (i > 0 && item !== i - 1) throw "body mismatch";
      getContext().getResponse().setBody(i);
    }
  });
  assert.equal(counted.resource, 999);
  const appended = await run("2", function () {
    for (let i = 0; i < 10; i++) getContext().getResponse().appendValue("Body", i);
  });
  assert.ok(appended.resource == 123456789);
  const given = await run("3", function (input) { getContext().getResponse().setBody("a" + input.temp); }, [{ temp: "so" }]);
  assert.equal(given.resource, "aso");
  const logged = await run("4", function () {
    console.log("The value of %s is %s.", "x", 1);
    getContext().getResponse().setBody("Success!");
  }, [], { enableScriptLogging: true });
  assert.equal(logged.resource, "Success!");
  assert.equal(logged.headers["x-ms-documentdb-script-log-results"], encodeURIComponent("The value of x is 1."));
  await c.items.create({ id: "1", pk: "a", n: 1 });
  await c.items.create({ id: "2", pk: "b", n: 2 });
  const rows = await run("5", function () {
    const container = getContext().getCollection(), response = getContext().getResponse();
    const accepted = container.queryDocuments(container.getSelfLink(), "SELECT r.id, r.n FROM r", {}, function (err, documents) {
      if (err) throw new Error("Error" + err.message);
      response.setBody(documents);
    });
    if (!accepted) throw "not accepted";
  });
  assert.deepEqual(rows.resource, [{ id: "1", n: 1 }]);
});

test("scripts: what fails writes nothing", async () => {
  const c = await container();
  await c.scripts.storedProcedures.create({
    id: "fails",
    body: function () {
      __.createDocument(__.getSelfLink(), { id: "1", pk: "a" });
      throw new Error("no");
    },
  });
  const error = await refused(400, c.scripts.storedProcedure("fails").execute("a", []));
  assert.match(error.message, /Error: no/);
  assert.deepEqual((await c.items.readAll().fetchAll()).resources, []);
});

test("scripts: triggers", async () => {
  const c = await container({ partitionKey: { paths: ["/id"] } });
  const { triggers } = c.scripts;
  await triggers.create({
    id: "t1",
    body: function () {
      const item = getContext().getRequest().getBody();
      item.name = item.name.toUpperCase() + "t1";
      getContext().getRequest().setBody(item);
    },
    triggerType: "Pre",
    triggerOperation: "All",
  });
  await triggers.create({
    id: "response1",
    body: function () {
      if (getContext().getRequest().getBody().name !== "AFTERt1") throw "name mismatch";
      if (getContext().getResponse().getBody().name !== "AFTERt1") throw "name mismatch";
    },
    triggerType: "Post",
    triggerOperation: "All",
  });
  await triggers.create({ id: "deletes", body: "function() { }", triggerType: "Post", triggerOperation: "Delete" });
  const { resource: upper } = await c.items.create({ id: "doc1", name: "doc" }, { preTriggerInclude: "t1" });
  assert.equal(upper.name, "DOCt1");
  const { resource: checked } = await c.items.upsert({ id: "doc2", name: "after" }, { preTriggerInclude: "t1", postTriggerInclude: "response1" });
  assert.equal(checked.name, "AFTERt1");
  await refused(400, c.items.create({ id: "doc3" }, { postTriggerInclude: "deletes" }));
  await c.item("doc2", "doc2").delete({ postTriggerInclude: "deletes" });
  await refused(404, c.scripts.trigger("none").read());
});

test("scripts: functions in queries over all ranges", async () => {
  const c = await container();
  for (let n = 0; n < 20; n++) await c.items.create({ id: String(n), pk: `p${n % 5}`, n });
  const { resource: made } = await c.scripts.userDefinedFunctions.create({ id: "tax", body: function (n) { return n > 10 ? n * 2 : n; } });
  assert.equal((await c.scripts.userDefinedFunction(made.id).read()).resource.id, "tax");
  const all = await c.items.query("SELECT VALUE udf.tax(c.n) FROM c WHERE udf.tax(c.n) >= 10").fetchAll();
  assert.deepEqual(all.resources.sort((a, b) => a - b), [10, 22, 24, 26, 28, 30, 32, 34, 36, 38]);
  const ordered = await c.items.query("SELECT c.n, udf.tax(c.n) AS t FROM c WHERE c.n > 8 ORDER BY c.n", { maxItemCount: 3 }).fetchAll();
  assert.deepEqual(ordered.resources.slice(0, 3), [{ n: 9, t: 9 }, { n: 10, t: 10 }, { n: 11, t: 22 }]);
  await refused(400, c.items.query("SELECT VALUE udf.none(c.n) FROM c").fetchAll());
  await c.scripts.userDefinedFunction("tax").delete();
  await refused(400, c.items.query("SELECT VALUE udf.tax(c.n) FROM c").fetchAll());
});
