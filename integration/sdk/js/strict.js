// Queries over several partition keys of a server that leaves them to plans, as Cosmos DB does: the SDK
// fetches the plan by itself.
import { assert, client, refused } from "./harness.js";

const c = client.database(process.env.MILLRACE_DATABASE).container("items");
for (const [text, want] of [
  ["SELECT VALUE COUNT(1) FROM c", [12]],
  ["SELECT VALUE c.n FROM c ORDER BY c.n DESC OFFSET 1 LIMIT 3", [10, 9, 8]],
  ["SELECT TOP 2 VALUE c.n FROM c ORDER BY c.n", [0, 1]],
]) {
  const { resources } = await c.items.query(text, { maxItemCount: 2 }).fetchAll();
  assert.deepEqual(resources, want, text);
}
await refused(400, c.items.query("SELECT * FROM c ORDER BY c.n + 1").fetchAll());
await refused(400, c.items.query("SELECT * FROM c ORDER BY c.n, c.pk").fetchAll());
