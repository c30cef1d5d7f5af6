import { assert, container, test } from "./harness.js";

for (const [name, operations, want, left] of [
  ["all kinds", [
    { operationType: "Create", resourceBody: { id: "new", pk: "a", n: 1 } },
    { operationType: "Upsert", resourceBody: { id: "new", pk: "a", n: 2 } },
    { operationType: "Replace", id: "seed", resourceBody: { id: "seed", pk: "a", n: 2 } },
    { operationType: "Patch", id: "seed", resourceBody: { operations: [{ op: "incr", path: "/n", value: 10 }] } },
    { operationType: "Read", id: "seed" },
    { operationType: "Delete", id: "new" },
  ], [201, 200, 200, 200, 200, 204], { seed: 12 }],
  ["a conflict", [
    { operationType: "Create", resourceBody: { id: "x", pk: "a" } },
    { operationType: "Create", resourceBody: { id: "seed", pk: "a" } },
    { operationType: "Create", resourceBody: { id: "y", pk: "a" } },
  ], [424, 409, 424], { seed: 1 }],
  ["an old etag", [
    { operationType: "Upsert", resourceBody: { id: "x", pk: "a" } },
    { operationType: "Replace", id: "seed", ifMatch: '"0000000000000001-0"', resourceBody: { id: "seed", pk: "a" } },
  ], [424, 412], { seed: 1 }],
  ["a condition that is false", [
    { operationType: "Upsert", resourceBody: { id: "x", pk: "a" } },
    { operationType: "Patch", id: "seed", resourceBody: { condition: "from c where c.n = 9", operations: [{ op: "incr", path: "/n", value: 1 }] } },
  ], [424, 412], { seed: 1 }],
]) {
  test(`batch: ${name}`, async () => {
    const c = await container();
    await c.items.create({ id: "seed", pk: "a", n: 1 });
    const { result, code } = await c.items.batch(operations, "a");
    assert.deepEqual(result.map((r) => r.statusCode), want);
    assert.equal(code, want.includes(424) ? 207 : 200);
    if (name === "all kinds") assert.equal(result[4].resourceBody.n, 12);
    const { resources } = await c.items.query("SELECT * FROM c").fetchAll();
    assert.deepEqual(Object.fromEntries(resources.map((r) => [r.id, r.n])), left);
  });
}

test("bulk", async () => {
  const c = await container();
  const keys = ["a", "b", 1, true, null, "Zoë"];
  const operations = Array.from({ length: 150 }, (_, i) => ({
    operationType: "Create", partitionKey: keys[i % keys.length], resourceBody: { id: `${i}`, pk: keys[i % keys.length], n: i },
  }));
  const created = await c.items.executeBulkOperations(operations);
  assert.deepEqual(new Set(created.map((r) => r.response?.statusCode ?? r.error?.code)), new Set([201]));
  const mixed = await c.items.executeBulkOperations([
    { operationType: "Read", id: "3", partitionKey: keys[3] },
    { operationType: "Create", partitionKey: "a", resourceBody: { id: "0", pk: "a" } },
    { operationType: "Delete", id: "1", partitionKey: "b" },
    { operationType: "Delete", id: "none", partitionKey: "b" },
    { operationType: "Patch", id: "2", partitionKey: 1, resourceBody: { operations: [{ op: "incr", path: "/n", value: 40 }] } },
    { operationType: "Upsert", partitionKey: "a", resourceBody: { id: "up", pk: "a" } },
    { operationType: "Replace", id: "6", partitionKey: "a", resourceBody: { id: "6", pk: "a", n: -6 } },
  ]);
  assert.deepEqual(mixed.map((r) => r.response?.statusCode ?? r.error?.code), [200, 409, 204, 404, 200, 201, 200]);
  const { resources } = await c.items.query("SELECT VALUE COUNT(1) FROM c").fetchAll();
  assert.deepEqual(resources, [150]);
  assert.equal((await c.item("2", 1).read()).resource.n, 42);
}, { since: 4 });

test("bulk of the older kind", async () => {
  const c = await container();
  const results = await c.items.bulk([
    { operationType: "Create", resourceBody: { id: "1", pk: "a" } },
    { operationType: "Create", resourceBody: { id: "1", pk: "b" } },
    { operationType: "Create", resourceBody: { id: "1", pk: "a" } },
    { operationType: "Read", id: "1", partitionKey: "b" },
  ], { continueOnError: true });
  assert.deepEqual(results.map((r) => r.statusCode), [201, 201, 409, 200]);
});
