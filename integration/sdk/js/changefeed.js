import { assert, ChangeFeedMode, ChangeFeedStartFrom, container, eventually, test } from "./harness.js";

/** rest reads an iterator until nothing is new. */
async function rest(iterator, show = (r) => `${r.id}=${r.n}`) {
  const all = [];
  for (;;) {
    const page = await iterator.readNext();
    if (page.statusCode === 304) {
      assert.ok(page.continuationToken, "304 without a continuation");
      return { shown: all.sort().join(" "), continuation: page.continuationToken };
    }
    assert.equal(page.statusCode, 200);
    all.push(...page.result.map(show));
  }
}

const from = (c, changeFeedStartFrom, options) => c.items.getChangeFeedIterator({ changeFeedStartFrom, ...options });

test("change feed: latest versions", async () => {
  const c = await container();
  const now = from(c, ChangeFeedStartFrom.Now());
  const lateStart = (await rest(now)).continuation;
  const beginning = from(c, ChangeFeedStartFrom.Beginning());
  assert.equal((await rest(beginning)).shown, "");
  const put = (pk, id, n) => c.items.upsert({ id, pk, n });
  await put("a", "1", 1);
  await put("b", "2", 1);
  await put("c", "3", 1);
  await put("a", "1", 2);
  assert.equal((await rest(beginning)).shown, "1=2 2=1 3=1");
  assert.equal((await rest(beginning)).shown, "");
  await put("b", "2", 2);
  await c.item("3", "c").delete();
  await put("d", "4", 1);
  const { shown, continuation } = await rest(beginning);
  assert.equal(shown, "2=2 4=1");
  assert.equal((await rest(now)).shown, "1=2 2=2 4=1");
  assert.equal((await rest(from(c, ChangeFeedStartFrom.Continuation(lateStart)))).shown, "1=2 2=2 4=1");
  assert.equal((await rest(from(c, ChangeFeedStartFrom.Beginning()))).shown, "1=2 2=2 4=1");
  await put("e", "5", 1);
  assert.equal((await rest(from(c, ChangeFeedStartFrom.Continuation(continuation)))).shown, "5=1");
  assert.equal((await rest(from(c, ChangeFeedStartFrom.Time(new Date(Date.now() - 3_600_000))))).shown, "1=2 2=2 4=1 5=1");
  assert.equal((await rest(from(c, ChangeFeedStartFrom.Time(new Date(Date.now() + 3_600_000))))).shown, "");
  assert.equal((await rest(from(c, ChangeFeedStartFrom.Beginning("b")))).shown, "2=2");
  assert.equal((await rest(from(c, ChangeFeedStartFrom.Now("b")))).shown, "");
  const parts = [];
  for (const range of await c.getFeedRanges()) {
    parts.push(...(await rest(from(c, ChangeFeedStartFrom.Beginning(range), { maxItemCount: 1 }))).shown.split(" ").filter(Boolean));
  }
  assert.equal(parts.sort().join(" "), "1=2 2=2 4=1 5=1");
}, { since: 4 });

test("change feed: a batch is whole", async () => {
  const c = await container();
  const sizes = [3, 1, 5];
  for (const [i, n] of sizes.entries()) {
    await c.items.batch(Array.from({ length: n }, (_, j) => ({ operationType: "Create", resourceBody: { id: `${i}-${j}`, pk: "a" } })), "a");
  }
  const feed = from(c, ChangeFeedStartFrom.Beginning("a"), { maxItemCount: 1 });
  for (const n of sizes) {
    const page = await feed.readNext();
    assert.equal(page.result.length, n);
    assert.equal(new Set(page.result.map((r) => r._lsn)).size, 1);
  }
  assert.equal((await feed.readNext()).statusCode, 304);
}, { since: 4 });

test("change feed: all versions and deletes", async () => {
  const c = await container({ defaultTtl: -1 });
  const options = { changeFeedMode: ChangeFeedMode.AllVersionsAndDeletes };
  const feed = from(c, ChangeFeedStartFrom.Now(), options);
  const seen = [];
  await rest(feed, (r) => seen.push(r));
  await c.items.create({ id: "1", pk: "a", n: 1 });
  await c.items.upsert({ id: "1", pk: "a", n: 2 });
  await c.item("1", "a").delete();
  const { continuation } = await rest(feed, (r) => seen.push(r));
  assert.deepEqual(seen.map((r) => [r.metadata.operationType, r.current?.n]), [["create", 1], ["replace", 2], ["delete", undefined]]);
  const [create, replace, gone] = seen.map((r) => r.metadata);
  assert.ok(create.lsn < replace.lsn && replace.lsn < gone.lsn && create.crts > 1.6e9, JSON.stringify(seen));
  assert.equal(replace.previousImageLSN, create.lsn);
  assert.equal(gone.previousImageLSN, replace.lsn);
  assert.equal(gone.id, "1");
  assert.deepEqual(gone.partitionKey, { pk: "a" });
  assert.equal(seen[0].current._etag.length > 2, true);

  await c.items.create({ id: "short", pk: "b", ttl: 1 });
  const later = [];
  const again = from(c, ChangeFeedStartFrom.Continuation(continuation), options);
  await eventually("the expiry is in the feed", async () => {
    await rest(again, (r) => later.push(r.metadata));
    return later.some((m) => m.timeToLiveExpired === true && m.operationType === "delete" && m.id === "short");
  });
  assert.deepEqual(later.map((m) => m.operationType), ["create", "delete"]);
}, { since: 4 });

test("change feed: the older iterator", async () => {
  const c = await container();
  await c.items.create({ id: "1", pk: "a", n: 1 });
  await c.items.create({ id: "2", pk: "b", n: 1 });
  const feed = c.items.changeFeed("a", { startFromBeginning: true });
  const first = await feed.fetchNext();
  assert.deepEqual(first.result.map((r) => r.id), ["1"]);
  assert.equal((await feed.fetchNext()).statusCode, 304);
  const on = c.items.changeFeed("a", { continuation: first.headers.etag });
  await c.items.create({ id: "3", pk: "a", n: 1 });
  assert.deepEqual((await on.fetchNext()).result.map((r) => r.id), ["3"]);
});

test("change feed: prefixes of hierarchical keys", async () => {
  const c = await container({ partitionKey: { paths: ["/tenant", "/user"], kind: "MultiHash", version: 2 } });
  for (let i = 0; i < 12; i++) await c.items.create({ id: `${i}`, tenant: "ab"[i % 2], user: `u${i % 3}`, n: i });
  assert.equal((await rest(from(c, ChangeFeedStartFrom.Beginning(["a"])), (r) => r.id)).shown, "0 10 2 4 6 8");
  assert.equal((await rest(from(c, ChangeFeedStartFrom.Beginning(["a", "u0"])), (r) => r.id)).shown, "0 6");
}, { since: 4 });
