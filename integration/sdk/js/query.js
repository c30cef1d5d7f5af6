import { readFileSync } from "node:fs";
import { assert, ChangeFeedStartFrom, client, container, CosmosClient, endpoint, key, refused, sorted, test } from "./harness.js";

// The same items and queries that the Go SDK is asked.
const { items, cases } = JSON.parse(readFileSync(new URL("../testdata/queries.json", import.meta.url)));
let filled;
async function shared() {
  filled ??= (async () => {
    const c = await container();
    for (const item of items) await c.items.create(item);
    return c;
  })();
  return filled;
}

for (const { name, query, parameters, key, ordered, want } of cases) {
  for (const [how, options] of [["page=0", {}], ["page=2", { maxItemCount: 2 }], ["plan", { forceQueryPlan: true }]]) {
    if (options.forceQueryPlan && key !== undefined) continue; // the SDK does not send the key then
    test(`query: ${name}/${how}`, async () => {
      const c = await shared();
      const spec = { query, parameters: Object.entries(parameters ?? {}).map(([name, value]) => ({ name, value })) };
      const got = [];
      const iterator = c.items.query(spec, key === undefined ? options : { ...options, partitionKey: key });
      while (iterator.hasMoreResults()) {
        const { resources } = await iterator.fetchNext();
        if (options.maxItemCount) assert.ok((resources ?? []).length <= options.maxItemCount, `a page of ${resources.length}`);
        got.push(...(resources ?? []));
      }
      assert.deepEqual(sorted(got, ordered), sorted(want, ordered), query);
    });
  }
}

test("query: a continuation in another client", async () => {
  const c = await shared();
  const ids = [];
  for (let continuationToken; ; ) {
    const again = new CosmosClient({ endpoint, key }).database(c.database.id).container(c.id);
    const page = await again.items.query("SELECT VALUE c.id FROM c WHERE c.pk = 'a' ORDER BY c.id", { partitionKey: "a", maxItemCount: 4, continuationToken }).fetchNext();
    ids.push(...page.resources);
    continuationToken = page.continuationToken;
    if (!continuationToken) break;
  }
  assert.deepEqual(ids, items.filter((i) => i.pk === "a").map((i) => i.id));
  await refused(400, c.items.query("SELECT * FROM c", { partitionKey: "a", continuationToken: "nonsense" }).fetchNext());
});

test("query: by feed ranges", async () => {
  const c = await shared();
  const ids = [];
  for (const range of await c.getFeedRanges()) {
    const changes = c.items.getChangeFeedIterator({ changeFeedStartFrom: ChangeFeedStartFrom.Beginning(range) });
    for (let page = await changes.readNext(); page.statusCode === 200; page = await changes.readNext()) ids.push(...page.result.map((r) => r.id));
  }
  assert.deepEqual(ids.sort(), items.map((i) => i.id).sort());
}, { since: 4 });
