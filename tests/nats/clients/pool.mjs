// A service or a caller of the subject "pool", for tests. Usage: node pool.mjs URL serve | node pool.mjs URL ask NAME
// A service prints each request before it answers with "js". A caller asks in lanes until standard input ends, and prints each
// request with its outcome: the reply, the code of an error, or "silent".
import { writeSync } from "node:fs";
import { connect } from "@nats-io/transport-node";

const LANES = 4;
const PATIENCE_MS = 10_000;
const say = (...words) => writeSync(1, `${words.join(" ")}\n`);

async function serve(client) {
  client.subscribe("pool", {
    queue: "js",
    callback: (_error, request) => {
      say(request.string());
      request.respond("js");
    },
  });
  await client.flush();
  say("serving");
}

async function outcome(client, payload) {
  try {
    const reply = await client.request("pool", payload, { timeout: PATIENCE_MS });
    return reply.headers?.get("Nats-Service-Error-Code") || reply.string();
  } catch (error) {
    const causes = `${error.name} ${error.cause?.name}`;
    return causes.includes("NoResponders") ? "503" : "silent";
  }
}

async function ask(client, name) {
  let isOver = false;
  process.stdin.on("end", () => { isOver = true; }).resume();
  await Promise.all([...Array(LANES).keys()].map(async (lane) => {
    for (let number = 0; !isOver; number += 1) {
      const payload = `${name}.${lane}.${number}`;
      say(payload, await outcome(client, payload));
    }
  }));
  await client.close();
}

const [url, way, name] = process.argv.slice(2);
const client = await connect({ servers: url });
await (way === "serve" ? serve(client) : ask(client, name));
