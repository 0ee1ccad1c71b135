// The page: follows the notes of its user through the door, comes back after an interruption, and says if notes are missing.

const SHOWN = 20;
const SILENT_MS = 40_000; // the door says something each 15 s

/** @param {string} id @returns {any} */
const element = id => document.getElementById(id);
/** The notes by their number, so a note that comes twice is shown once. @type {Map<number, string>} */
const notes = new Map();
let cursor = "";

/** @param {number} milliseconds */
const pause = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));

element("login").addEventListener("submit", async event => {
  event.preventDefault();
  await fetch("login", {method: "POST", body: JSON.stringify({name: element("name").value})});
  follow();
});

/** Follows the notes for as long as the user is logged in. */
async function follow() {
  for (let isIn = true; isIn;) {
    try {
      isIn = await read();
    } catch {
      isIn = true; // the connection is lost, or the application is away
    }
    element("login").hidden = isIn;
    element("state").textContent = isIn ? "connecting again" : "";
    if (isIn) await pause(500 + 1500 * Math.random());
  }
}

/** Reads an event stream to its end; false if nobody is logged in. Each time the application gives a fresh token. */
async function read() {
  const pass = await fetch("token", {method: "POST"});
  if (pass.status === 401) return false;
  const {user, token} = await pass.json();
  element("login").hidden = true;
  element("user").textContent = `of ${user}`;
  const headers = {Authorization: `Bearer ${token}`, Accept: "application/x-ndjson", ...(cursor ? {"Last-Event-ID": cursor} : {})};
  const control = new AbortController();
  const answer = await fetch(`iris/v1/topics/events?pattern=notes.${user}.%3E&from=last`, {headers, signal: control.signal});
  if (!answer.ok || !answer.body) return true;
  element("state").textContent = "connected";
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const silent = setTimeout(() => control.abort(), SILENT_MS);
    const {value, done} = await reader.read().finally(() => clearTimeout(silent));
    if (done) return true;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) if (line) await take(JSON.parse(line));
  }
}

/** @param {{kind: string, id?: string, json?: any, missed?: number | null}} event */
async function take(event) {
  if (event.kind === "message") show([event.json]);
  if (event.kind === "gap") await loadAnew(event.missed ?? null);
  if (event.id) cursor = event.id;
}

/** The door cannot give all that was missed: say so, and ask the application for the state. @param {number | null} missed */
async function loadAnew(missed) {
  element("missed").textContent = `${missed ?? "Some"} notes may have been missed here, so the list was loaded anew.`;
  const answer = await fetch("notes");
  if (answer.ok) show(await answer.json());
}

/** @param {{number: number, text: string}[]} added */
function show(added) {
  for (const {number, text} of added) notes.set(number, text);
  const newest = [...notes.keys()].sort((one, other) => other - one);
  for (const number of newest.splice(SHOWN)) notes.delete(number);
  element("notes").replaceChildren(...newest.map(number => {
    const item = document.createElement("li");
    item.textContent = `${number}: ${notes.get(number)}`;
    return item;
  }));
}

follow();
