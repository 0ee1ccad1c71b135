// Checks a server of NATS with nats.js; prints a line for each check that holds. Usage: node smoke.mjs URL [URL of the second client]
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.env.NATS_CLIENTS}/package.json`);
const { connect, headers } = await import(pathToFileURL(require.resolve("@nats-io/transport-node")).href);

const MESSAGES = 50_000;
const text = (data) => new TextDecoder().decode(data);

function check(name, holds) {
  if (!holds) throw new Error(`${name} does not hold`);
  console.log(name);
}

async function take(subscription, count) {
  const taken = [];
  for await (const message of subscription) {
    taken.push(message);
    if (taken.length === count) break;
  }
  return taken;
}

const one = await connect({ servers: process.argv[2] });
const other = await connect({ servers: process.argv[3] ?? process.argv[2] });
check("connect", one.info.headers);

const wide = take(other.subscribe("smoke.*.b"), 2);
const deep = take(other.subscribe("smoke.>"), 2);
await other.flush();
one.publish("smoke.a.b", "1");
one.publish("smoke.c.b", "2");
check("publish", (await wide).map((message) => text(message.data)).join() === "1,2");
check("wildcards", (await deep).map((message) => message.subject).join() === "smoke.a.b,smoke.c.b");

let shared = 0;
for (const client of [one, other]) {
  client.subscribe("jobs.new", { queue: "workers", callback: () => { shared += 1; } });
  await client.flush();
}
for (let number = 0; number < 100; number += 1) one.publish("jobs.new", "x");
await one.flush();
await other.flush();
await new Promise((done) => setTimeout(done, 200));
check("queue", shared === 100);

other.subscribe("upper", {
  queue: "upper",
  callback: (_error, message) => {
    const answer = headers();
    answer.set("language", message.headers?.get("language") ?? "none");
    message.respond(text(message.data).toUpperCase(), { headers: answer });
  },
});
await other.flush();
const asked = headers();
asked.set("language", "js");
const reply = await one.request("upper", "hello", { headers: asked, timeout: 5000 });
check("request", text(reply.data) === "HELLO");
check("headers", reply.headers.get("language") === "js");

let refused = "";
try {
  await one.request("nobody.answers", "", { timeout: 5000 });
} catch (error) {
  refused = `${error.name} ${error.message}`;
}
check("no responders", /NoResponders|no responders/i.test(refused));

const many = take(other.subscribe("many"), MESSAGES);
await other.flush();
for (let number = 0; number < MESSAGES; number += 1) {
  one.publish("many", String(number));
  if (number % 1000 === 999) await one.flush();
}
check("many", (await many).every((message, number) => text(message.data) === String(number)));

let drained = 0;
const last = other.subscribe("last", { callback: () => { drained += 1; } });
await other.flush();
for (let number = 0; number < 10; number += 1) other.publish("last", "x");
await other.drain();
check("drain", drained === 10 && last.isClosed());
await one.close();
