// The page of the demo: signs in with the code in the link, follows topics by one event stream, publishes, and asks a cluster.

import {make, setText} from "../iris/static/elements.js";

const SYMBOLS = ["ASTER", "CROCUS", "FREESIA", "IRIS", "TULIP"];
const ENTRIES_MAX = 50;
const CHAT = "chat.room";
const DOOR = "iris/v1";

/** @param {string} id @returns {any} */
const element = id => document.getElementById(id);
const visitor = `visitor ${Math.floor(1000 + Math.random() * 9000)}`;
/** @type {Map<string, {price: HTMLElement, change: HTMLElement}>} */
const rows = new Map();
let count = 0;

/** A request to the door with the cookie; the header shows that a page of this site sends it. */
function ask(method, path, body, headers = {}) {
  return fetch(`${DOOR}/${path}`, {method, body, headers: {"Iris-Request": "1", ...headers}});
}

async function begin() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code) {
    history.replaceState(null, "", location.pathname);
    await ask("POST", "session", JSON.stringify({code}), {"Content-Type": "application/json"});
  }
  const answer = await ask("GET", "session");
  if (!answer.ok) return say("This link was used, or is too old. Start the demo again for a new one.", true);
  for (const symbol of SYMBOLS) addSymbol(symbol);
  element("ask").addEventListener("submit", askForQuote);
  element("say").addEventListener("submit", publish);
  follow();
}

/** @param {string} symbol */
function addSymbol(symbol) {
  const row = {price: make("td", {class: "number"}), change: make("td", {class: "number"})};
  rows.set(symbol, row);
  element("prices").append(make("tr", {}, make("th", {scope: "row"}, symbol), row.price, row.change));
  element("symbol").append(make("option", {}, symbol));
}

function follow() {
  const events = new EventSource(`${DOOR}/topics/events?pattern=news.prices.%3E&pattern=${CHAT}&from=last`);
  events.onopen = () => say("connected", false);
  events.onmessage = event => show(JSON.parse(event.data));
  events.addEventListener("gap", event => {
    const {missed} = JSON.parse(event.data);
    if (missed) note("chat", `${missed} messages were missed.`, "problem");
  });
  events.addEventListener("closing", () => say("the door closes", true));
  events.onerror = () => {
    say("the door does not answer", true);
    if (events.readyState === EventSource.CLOSED) setTimeout(follow, 2000);
  };
}

/** @param {{topic: string, json?: any}} message */
function show({topic, json}) {
  if (topic === CHAT) return note("chat", `${json?.name}: ${json?.text}`);
  const row = rows.get(topic.slice(topic.lastIndexOf(".") + 1));
  if (!row) return;
  setText(element("count"), String(count += 1));
  setText(row.price, json.price.toFixed(2));
  setText(row.change, `${json.change < 0 ? "−" : "+"}${Math.abs(json.change).toFixed(2)} %`);
  row.change.classList.toggle("is-down", json.change < 0);
}

/** @param {SubmitEvent} event */
async function askForQuote(event) {
  event.preventDefault();
  const answer = await ask("POST", "clusters/quotes/request", element("symbol").value, {"Iris-Timeout": "10", "Idempotency-Key": crypto.randomUUID()});
  if (!answer.ok) return note("quotes", (await answer.json()).title, "problem");
  const milliseconds = Math.round(Number(answer.headers.get("Iris-Seconds")) * 1000);
  const {symbol, price, member, process} = await answer.json();
  note("quotes", `${symbol} ${price.toFixed(2)} from member ${member.slice(0, 8)} (process ${process}) in ${milliseconds} ms`);
}

/** @param {SubmitEvent} event */
async function publish(event) {
  event.preventDefault();
  const field = element("text");
  const answer = await ask("POST", `topics/${CHAT}`, JSON.stringify({name: visitor, text: field.value}));
  if (answer.ok) field.value = "";
  else note("chat", (await answer.json()).title, "problem");
}

/** Adds an entry to a list. @param {string} id @param {string} text @param {string} [kind] */
function note(id, text, kind = "") {
  const list = element(id);
  list.append(make("li", kind ? {class: kind} : {}, text));
  while (list.children.length > ENTRIES_MAX) list.firstElementChild.remove();
  list.scrollTop = list.scrollHeight;
}

/** @param {string} text @param {boolean} isBad */
function say(text, isBad) {
  setText(element("state"), text);
  element("state").classList.toggle("is-bad", isBad);
}

begin().catch(error => say(String(error), true));
