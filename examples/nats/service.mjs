// Counts words, as the services in other languages beside it do. Usage: node service.mjs [URL of a door]
import { connect, headers } from "@nats-io/transport-node";

const client = await connect({ servers: process.argv[2] ?? "nats://127.0.0.1:4222", maxReconnectAttempts: -1 });

// A queue subscription is a member of the cluster "words": native programs ask it, too.
client.subscribe("words", {
  queue: "counters",
  callback: (_error, request) => {
    const words = request.string().split(/\s+/).filter(Boolean).length;
    if (words === 0) {
      const failure = headers(); // a RemoteError for native callers
      failure.set("Nats-Service-Error", "there are no words");
      failure.set("Nats-Service-Error-Code", "400");
      request.respond("", { headers: failure });
      return;
    }
    const counted = `${words} words, counted in JavaScript`;
    client.publish("words.counted", counted); // for every subscriber of the topic, native ones too
    request.respond(counted);
  },
});
await client.flush();
console.log("serving");

for (const signal of ["SIGINT", "SIGTERM"]) {
  process.once(signal, () => client.drain()); // answers the requests that have arrived
}
await client.closed();
