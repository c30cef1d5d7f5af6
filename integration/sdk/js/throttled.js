// Writes at once to a server that carries out one request at a time: each write is
// done in the end, because the SDK tries again.
import { assert, client } from "./harness.js";

const c = client.database(process.env.MILLRACE_DATABASE).container("items");
await Promise.all(Array.from({ length: 20 }, (_, i) => c.items.upsert({ id: `js-${i}`, pk: "js" })));
const { resources } = await c.items.query("SELECT VALUE COUNT(1) FROM c", { partitionKey: "js" }).fetchAll();
assert.deepEqual(resources, [20]);
