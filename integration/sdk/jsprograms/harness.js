// What the cases share: a list of them, a client, names of databases, and expectations. run.js runs
// the cases and prints one line of JSON for each, of which jsprograms_test.go makes a Go test.
import assert from "node:assert/strict";
import { CosmosClient } from "@azure/cosmos";

export { assert };
export const endpoint = process.env.MILLRACE_ENDPOINT;
export const key = process.env.MILLRACE_KEY;
/** connectionString is what programs are given that take one. */
export const connectionString = `AccountEndpoint=${endpoint};AccountKey=${key};`;
/** client is the SDK's own, which looks at what a program has stored. */
export const client = new CosmosClient({ endpoint, key });

export const cases = [];
export function test(name, run) {
  cases.push({ name, run });
}

let named = 0;
/** databaseName is a name that no other case uses. */
export function databaseName() {
  return `programs${process.pid}-${Date.now().toString(36)}-${named++}`;
}

/** stored reads all items of a container, without the system's properties. */
export async function stored(database, container) {
  const { resources } = await client.database(database).container(container).items.readAll().fetchAll();
  return resources
    .map((item) => Object.fromEntries(Object.entries(item).filter(([name]) => !name.startsWith("_"))))
    .sort((a, b) => (a.id < b.id ? -1 : 1));
}

/** refused expects an error of the SDK with a status. */
export async function refused(code, promise) {
  const error = await promise.then(
    () => assert.fail(`no error, want ${code}`),
    (error) => error,
  );
  assert.equal(error.code, code, `want ${code}: ${error.stack}`);
  return error;
}

/** eventually waits until a condition holds, for a minute at most. */
export async function eventually(what, condition) {
  for (const deadline = Date.now() + 60_000; !(await condition()); ) {
    if (Date.now() > deadline) assert.fail(`not after a minute: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
