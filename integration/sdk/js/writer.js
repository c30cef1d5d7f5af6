// Writes batches under keys until its standard input ends, reads them again in two ways, and prints the number of each round
// of them. It tries again what did not come back, unless MILLRACE_UNBROKEN says that nothing may fail.
import { assert, client } from "./harness.js";

const c = client.database(process.env.MILLRACE_DATABASE).container("items");
const keys = process.env.MILLRACE_KEYS.split(",");
let stop = false;
process.stdin.on("end", () => { stop = true; }).resume();

async function insist(call) {
  for (;;) {
    try {
      return await call();
    } catch (error) {
      const refused = typeof error.code === "number" && error.code < 500 && ![408, 429, 449].includes(error.code);
      if (process.env.MILLRACE_UNBROKEN || refused || error instanceof assert.AssertionError) throw error;
    }
  }
}

async function write(pk, n) {
  const operations = ["head", `item${n}`].map((id) => ({ operationType: "Upsert", resourceBody: { id, pk, n } }));
  const { code } = await c.items.batch(operations, pk);
  assert.equal(code, 200, "what a batch of upserts is answered with");
}

const heads = {
  query: "SELECT VALUE c.n FROM c WHERE c.id = 'head' AND ARRAY_CONTAINS(@keys, c.pk) ORDER BY c.pk",
  parameters: [{ name: "@keys", value: keys }],
};
for (let n = 1; !stop; n++) {
  const want = keys.map(() => n);
  await Promise.all(keys.map((pk) => insist(() => write(pk, n))));
  const read = await Promise.all(keys.map((pk) => insist(() => c.item("head", pk).read())));
  assert.deepEqual(read.map(({ resource }) => resource?.n), want, "heads read");
  const { resources } = await insist(() => c.items.query(heads, { maxItemCount: 2 }).fetchAll());
  assert.deepEqual(resources, want, "heads found");
  console.log(n);
}
client.dispose();
