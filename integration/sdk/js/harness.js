// What the cases share: a list of them, a client, and expectations that say what
// they saw. run.js runs the cases and prints one line of JSON for each, of which
// js_test.go makes a Go test.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

export { assert };
// Which of the versions that package.json has is what runs.
const sdk = createRequire(import.meta.url)(process.env.MILLRACE_COSMOS ?? "@azure/cosmos");
export const { ChangeFeedMode, ChangeFeedStartFrom, CosmosClient, PermissionMode } = sdk;
/** major is the SDK's major version: 3 has no feed ranges, no change feed of them, and no bulk of more than a hundred operations. */
export const major = ChangeFeedStartFrom ? 4 : 3;
export const endpoint = process.env.MILLRACE_ENDPOINT;
export const key = process.env.MILLRACE_KEY;
export const readOnlyKey = process.env.MILLRACE_READ_ONLY_KEY;
export const client = new CosmosClient({ endpoint, key });
export const partitions = Number(process.env.MILLRACE_PARTITIONS);

export const cases = [];
/** test adds a case, which runs with the SDK's versions from since on. */
export function test(name, run, { since = 3 } = {}) {
  if (major >= since) cases.push({ name, run });
}

let made = 0;
/** container makes a container in a database for the case alone. */
export async function container(definition = {}, by = client) {
  const id = `js${process.pid}-${Date.now().toString(36)}-${made++}`;
  const { database } = await by.databases.create({ id });
  const { container } = await database.containers.create({ id: "items", partitionKey: { paths: ["/pk"] }, ...definition });
  return container;
}

/** refused expects an error of the SDK's own, with a status and a message. */
export async function refused(code, promise) {
  const error = await promise.then(
    (answer) => assert.fail(`no error, want ${code}; the answer has ${answer?.statusCode}`),
    (error) => error,
  );
  assert.equal(error.code, code, `want ${code}: ${error.stack}`);
  assert.ok(error.message?.length > 0, "an error without a message");
  return error;
}

/** sorted prints results so that equal ones print alike. */
export function sorted(results, ordered = false) {
  const lines = results.map((r) => JSON.stringify(canonical(r)));
  return ordered ? lines : lines.sort();
}

function canonical(v) {
  if (Array.isArray(v)) return v.map(canonical);
  if (v === null || typeof v !== "object") return v;
  return Object.fromEntries(Object.keys(v).sort().map((k) => [k, canonical(v[k])]));
}

/** eventually waits until a condition holds, for a minute at most. */
export async function eventually(what, condition) {
  for (const deadline = Date.now() + 60_000; !(await condition()); ) {
    if (Date.now() > deadline) assert.fail(`not after a minute: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
