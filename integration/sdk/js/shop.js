import { assert, ChangeFeedStartFrom, client, test } from "./harness.js";

/** shop makes the web shop of the articles: customer i has i orders. */
async function shop(customers) {
  const { database } = await client.databases.create({ id: `shop${process.pid}-${Date.now().toString(36)}` });
  const make = async (id, path, more = {}) => (await database.containers.create({ id, partitionKey: path, ...more })).container;
  const s = {
    customers: await make("customer", "/customerId", { indexingPolicy: { includedPaths: [{ path: "/salesOrderCount/?" }], excludedPaths: [{ path: "/*" }] } }),
    products: await make("product", "/categoryId"),
    meta: await make("productMeta", "/type"),
  };
  for (let i = 0; i < customers; i++) {
    const id = `c${i}`;
    const items = [{ id, type: "customer", customerId: id, salesOrderCount: i }];
    for (let j = 0; j < i; j++) items.push({ id: `o${i}-${j}`, type: "salesOrder", customerId: id });
    await s.customers.items.batch(items.map((resourceBody) => ({ operationType: "Create", resourceBody })), id);
  }
  for (let i = 0; i < 4; i++) {
    await s.meta.items.create({ id: `cat${i}`, type: "category", name: `Category ${i}` });
    for (let j = 0; j < 3; j++) await s.products.items.create({ id: `p${i}-${j}`, categoryId: `cat${i}`, categoryName: `Category ${i}` });
  }
  return s;
}

const ask = async (container, query, partitionKey, options = {}) =>
  (await container.items.query(query, partitionKey === undefined ? options : { ...options, partitionKey }).fetchAll()).resources;

test("shop: the five queries", async () => {
  const s = await shop(15);
  assert.deepEqual((await ask(s.customers, "SELECT * FROM c WHERE c.id = 'c7'", "c7")).map((c) => c.salesOrderCount), [7]);
  assert.equal((await ask(s.meta, "SELECT * FROM c WHERE c.type = 'category'", "category")).length, 4);
  assert.equal((await ask(s.products, "SELECT * FROM c WHERE c.categoryId = 'cat2'", "cat2")).length, 3);
  assert.equal((await ask(s.customers, "SELECT * FROM c WHERE c.customerId = 'c9'", "c9")).length, 10);
  const all = await ask(s.customers, "SELECT * FROM c WHERE c.type = 'customer' ORDER BY c.salesOrderCount DESC", undefined, { maxItemCount: 4 });
  assert.deepEqual(all.map((c) => c.salesOrderCount), Array.from({ length: 15 }, (_, i) => 14 - i));
  const top = await ask(s.customers, "SELECT TOP 10 * FROM c WHERE c.type = 'customer' ORDER BY c.salesOrderCount DESC");
  assert.deepEqual(top.map((c) => c.id), Array.from({ length: 10 }, (_, i) => `c${14 - i}`));
});

test("shop: orders in batches, a renamed category, and the change feed", async () => {
  const s = await shop(3);
  const feed = s.customers.items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Now(), maxItemCount: 1 });
  const next = async () => {
    const page = await feed.readNext();
    return page.statusCode === 304 ? [] : page.result;
  };
  assert.deepEqual(await next(), []);
  const { resource: customer } = await s.customers.item("c1", "c1").read();
  const placed = await s.customers.items.batch([
    { operationType: "Create", resourceBody: { id: "new", type: "salesOrder", customerId: "c1" } },
    { operationType: "Replace", id: "c1", ifMatch: customer._etag, resourceBody: { ...customer, salesOrderCount: 2 } },
  ], "c1");
  assert.equal(placed.code, 200);
  const order = await next();
  assert.deepEqual(order.map((r) => r.id), ["new", "c1"]);
  assert.equal(order[1].salesOrderCount, 2);
  await s.customers.items.batch([
    { operationType: "Delete", id: "new" },
    { operationType: "Patch", id: "c1", resourceBody: { operations: [{ op: "incr", path: "/salesOrderCount", value: -1 }] } },
  ], "c1");
  assert.deepEqual((await next()).map((r) => [r.id, r.salesOrderCount]), [["c1", 1]]);
  assert.deepEqual(await next(), []);

  // A processor that sees every category once per start.
  let place = ChangeFeedStartFrom.Beginning();
  const process = async () => {
    const seen = [];
    const iterator = s.meta.items.getChangeFeedIterator({ changeFeedStartFrom: place });
    for (;;) {
      const page = await iterator.readNext();
      place = ChangeFeedStartFrom.Continuation(page.continuationToken);
      if (page.statusCode === 304) return seen.sort();
      for (const category of page.result) {
        seen.push(category.name);
        for (const product of await ask(s.products, "SELECT * FROM c", category.id)) {
          await s.products.item(product.id, category.id).patch([{ op: "set", path: "/categoryName", value: category.name }]);
        }
      }
    }
  };
  assert.deepEqual(await process(), ["Category 0", "Category 1", "Category 2", "Category 3"]);
  await s.meta.item("cat2", "category").patch([{ op: "set", path: "/name", value: "Renamed" }]);
  assert.deepEqual(await process(), ["Renamed"]);
  assert.deepEqual(await process(), []);
  assert.deepEqual(new Set((await ask(s.products, "SELECT VALUE c.categoryName FROM c", "cat2"))), new Set(["Renamed"]));
}, { since: 4 });
