// The dashboard: signs in, shows the page in the address, and follows the door's events.

import {fill, make, setText} from "./elements.js";
import {clock} from "./format.js";
import {makePage, startCharts, TITLES} from "./pages.js";
import {linkTo} from "./parts.js";

const SILENT_S = 5;
const main = /** @type {HTMLElement} */ (document.getElementById("main"));
const state = /** @type {HTMLElement} */ (document.getElementById("state"));
const leave = /** @type {HTMLButtonElement} */ (document.getElementById("leave"));
const command = /** @type {HTMLElement} */ (document.getElementById("command"));

/** @type {EventSource | null} */
let events = null;
let shown = null;
let heardAt = 0;

/** @param {string} method @param {Record<string, string>} [headers] @param {string} [body] */
function session(method, headers = {}, body) {
  return fetch("v1/session", {method, body, headers: {"Iris-Request": "1", ...headers}});
}

async function begin() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code) {
    history.replaceState(null, "", location.pathname);
    const answer = await session("POST", {"Content-Type": "application/json"}, JSON.stringify({code}));
    if (!answer.ok) return askForToken("This link was used, or is too old. Start the door again for a new one, or paste a token.");
  }
  const answer = await session("GET");
  if (!answer.ok) return askForToken("");
  const {observes} = await answer.json();
  if (!observes) return askForToken("This token does not allow to look at the network.");
  leave.hidden = false;
  addEventListener("hashchange", showPage);
  showPage();
}

/** @param {string} text */
function askForToken(text) {
  setText(state, "");
  leave.hidden = true;
  const token = /** @type {HTMLInputElement} */ (make("input", {type: "password", id: "token", autocomplete: "off", required: true}));
  const problem = make("p", {class: "problem", role: "alert"}, text);
  const form = make("form", {class: "sign-in", onsubmit: async event => {
    event.preventDefault();
    const answer = await session("POST", {Authorization: `Bearer ${token.value.trim()}`});
    if (answer.ok) location.reload();
    else setText(problem, (await answer.json()).title);
  }}, make("label", {for: "token"}, "Token"), token,
    make("p", {class: "fine"}, "Make one with ", make("code", {}, "iris token new --observe")),
    make("div", {}, make("button", {}, "Sign in")), problem);
  fill(main, make("h1", {}, "Sign in"), form);
  token.focus();
}

function showPage() {
  const [kind, name] = location.hash.replace(/^#\//, "").split("/", 2).map(part => decodeURIComponent(part ?? ""));
  const wanted = kind ? makePage(kind, name ?? "") : null;
  if (!wanted) { location.replace(linkTo("overview")); return; }
  document.title = `${wanted.title} - Iris`;
  drawNavigation(kind);
  shown?.leave();
  wanted.show(main);
  showCommands([]);
  main.focus();
  shown = wanted;
  follow(name ? `${kind}:${name}` : kind);
}

/** @param {string} kind */
function drawNavigation(kind) {
  const parents = {cluster: "clusters", topic: "topics", node: "nodes"};
  const current = parents[kind] ?? kind;
  const items = Object.entries(TITLES).map(([page, title]) =>
    make("li", {}, make("a", {href: linkTo(page), ...(page === current ? {"aria-current": "page"} : {})}, title)));
  document.getElementById("pages")?.replaceChildren(...items);
}

/** @param {string} page */
function follow(page) {
  events?.close();
  const source = events = new EventSource(`v1/watch?page=${encodeURIComponent(page)}`);
  source.addEventListener("chart", event => startCharts(JSON.parse(event.data)));
  source.addEventListener("page", event => {
    const content = JSON.parse(event.data);
    if (content.head.page !== page || source !== events) return;
    heardAt = performance.now();
    setText(/** @type {HTMLElement} */ (document.getElementById("network")), content.head.network);
    showCommands([{command: content.head.command, text: "shows the same"}, ...content.head.actions]);
    shown.update(content);
    const {answered, asked, is_sample: isSample} = content.head.summary;
    const partial = answered < asked ? `, ${asked - answered} of ${asked} nodes did not answer` : isSample ? `, from ${answered} nodes` : "";
    say(`${clock(content.head.unix_s)}${partial}`, answered < asked);
  });
  source.onerror = async () => {
    say("The door does not answer", true);
    if (source.readyState === EventSource.CLOSED) {
      const answer = await session("GET").catch(() => null);
      if (answer && answer.status === 401) { events = null; askForToken("The session has ended."); }
      else setTimeout(() => { if (source === events) follow(page); }, 2000);
    }
  };
}

/** Shows the commands of a page, which change something where the page does not. @param {{command: string, text: string}[]} commands */
function showCommands(commands) {
  const shown = JSON.stringify(commands);
  if (command.dataset.shown === shown) return;
  command.dataset.shown = shown;
  command.replaceChildren(...commands.map(each => make("li", {}, make("code", {}, each.command), ` ${each.text}`)));
}

/** @param {string} text @param {boolean} isBad */
function say(text, isBad) {
  state.setAttribute("aria-live", isBad ? "polite" : "off"); // nobody wants to hear the time each second
  setText(state, text);
  state.classList.toggle("is-bad", isBad);
}

setInterval(() => {
  if (events && heardAt && performance.now() - heardAt > SILENT_S * 1000) say(`No news for ${Math.round((performance.now() - heardAt) / 1000)} s`, true);
}, 1000);

leave.addEventListener("click", async () => { await session("DELETE"); location.reload(); });
begin().catch(error => { say(String(error), true); });
