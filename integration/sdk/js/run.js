// Runs all cases, or those that match the argument, one after the other.
import { cases, client } from "./harness.js";
import "./items.js";
import "./batch.js";
import "./query.js";
import "./changefeed.js";
import "./tokens.js";
import "./shop.js";
if (process.env.MILLRACE_SCRIPTS) await import("./scripts.js"); // the server runs them

const only = new RegExp(process.argv[2] ?? "");
for (const { name, run } of cases.filter((c) => only.test(c.name))) {
  const began = Date.now();
  let error = "";
  try {
    await run();
  } catch (e) {
    error = String(e?.stack ?? e) + (e?.body ? `\n${JSON.stringify(e.body)}` : "");
  }
  console.log(JSON.stringify({ name, error, milliseconds: Date.now() - began }));
}
client.dispose();
