// Runs all cases, or those that match the argument, one after the other.
import { cases, client } from "./harness.js";
import "./langchain.js";
import "./botbuilder.js";
import "./unstorage.js";

const only = new RegExp(process.argv[2] ?? "");
for (const { name, run } of cases.filter((c) => only.test(c.name))) {
  const began = Date.now();
  let error = "";
  try {
    await run();
  } catch (e) {
    error = e?.stack ?? JSON.stringify(e); // the SDK also throws objects that are no Error
    if (e?.body) error += `\n${JSON.stringify(e.body)}`;
  }
  console.log(JSON.stringify({ name, error, milliseconds: Date.now() - began }));
}
client.dispose();
process.exit(); // the programs never dispose of their clients, whose timers would go on
