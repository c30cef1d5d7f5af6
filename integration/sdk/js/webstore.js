// Asks the five queries of the shop on the whole data set, which js_test.go's caller
// has loaded, and prints what each took.
import { assert, client } from "./harness.js";

const c = client.database(process.env.MILLRACE_DATABASE).container("customer");
const { id, orders, top } = JSON.parse(process.env.MILLRACE_WANT);
const ask = async (what, query, options, check) => {
  let best = Infinity;
  for (let i = 0; i < 20; i++) {
    const began = performance.now();
    const { resources } = await c.items.query(query, options).fetchAll();
    best = Math.min(best, performance.now() - began);
    check(resources);
  }
  console.log(`${what}: ${best.toFixed(2)} ms at best of 20`);
};
const partitionKey = id;
await ask("a customer by id", { query: "SELECT * FROM c WHERE c.id = @id", parameters: [{ name: "@id", value: id }] }, { partitionKey }, (r) => {
  assert.deepEqual(r.map((c) => c.salesOrderCount), [orders]);
});
await ask("a customer with all orders", `SELECT * FROM c WHERE c.customerId = '${id}'`, { partitionKey }, (r) => assert.equal(r.length, orders + 1));
await ask("the top ten", "SELECT TOP 10 * FROM c WHERE c.type = 'customer' ORDER BY c.salesOrderCount DESC", {}, (r) => {
  assert.deepEqual(r.map((c) => c.salesOrderCount), top);
});
client.dispose();
