// Writes batches until its standard input ends, and prints the number of each batch
// that the SDK said was written. It tries again what did not come back.
import { client } from "./harness.js";

const c = client.database(process.env.MILLRACE_DATABASE).container("items");
let stop = false;
process.stdin.on("end", () => { stop = true; }).resume();
for (let n = 1; !stop; n++) {
  const operations = ["head", `item${n}`].map((id) => ({ operationType: "Upsert", resourceBody: { id, pk: "js", n } }));
  for (;;) {
    try {
      const { code } = await c.items.batch(operations, "js");
      if (code === 200) break;
      throw new Error(`a batch of upserts is answered with ${code}`);
    } catch (error) {
      if (typeof error.code === "number" && error.code < 500 && ![408, 429, 449].includes(error.code)) throw error;
    }
  }
  console.log(n);
}
client.dispose();
