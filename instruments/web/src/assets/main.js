// The page: requests to the server, the choice of the view, and changes after a confirmation.

import { FleetView } from "./fleet.js";
import { List } from "./list.js";
import { LogView, MemoryView } from "./log.js";
import { ObjectPage } from "./object.js";
import { RecordsView } from "./records.js";
import { element, shown, span } from "./text.js";
import { write } from "./part.js";

const TIMEOUT_MS = 15_000;
/** Shortest time without an answer that the page reports. A page asks every two seconds, and an answer may take as long. */
const SILENCE_MS = 6000;

const byId = id => document.getElementById(id);
const token = location.pathname.split("/")[1];
/** The number by which the server knows this page. */
const pageNumber = Math.floor(Math.random() * 2 ** 48);

/** Sends a request. Throws an error with the server's reason and its status. */
async function request(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("no connection to squall browse: it has ended, or does not answer");
  }
  const text = await response.text();
  let answer;
  try {
    answer = JSON.parse(text);
  } catch {
    answer = { error: text.trim() || `the answer to ${path} has the status ${response.status}` };
  }
  if (!response.ok) throw Object.assign(new Error(answer.error), { status: response.status });
  return answer;
}

/** Asks the server. With a body, the request is a POST, which may wait for the program. */
const ask = (path, body) => request(path, body === undefined ? { signal: AbortSignal.timeout(TIMEOUT_MS) } : {
  method: "POST",
  headers: { "x-squall-token": token, "content-type": "application/json" },
  body: JSON.stringify(body),
});

/** Shows a text, and writes it only if it changed: a screen reader reads each writing. */
function say(id, text, isBad = false) {
  const place = byId(id);
  if (place.textContent === text) return;
  place.replaceChildren(...text === "" ? [] : [element("span", { className: isBad ? "bad" : "" }, text)]);
}

/** Shows the outcome of the last change. */
const tell = (text, isBad = false) => say("message", shown(text), isBad);

/** Asks the user for a confirmation, then the server for the change. */
async function act(verb, what, question, path, body) {
  const dialog = byId("confirm");
  if (dialog.open) return;
  const { author, records_authors } = site.program;
  byId("question").textContent = shown(question);
  byId("author").textContent = records_authors === false
    ? "The program uses an older Squall, which records no authors."
    : shown(`The program records the author: ${author}`);
  byId("yes").textContent = verb;
  dialog.returnValue = "";
  dialog.showModal();
  await new Promise(resolve => dialog.addEventListener("close", resolve, { once: true }));
  if (dialog.returnValue !== "yes") return;
  tell(`${verb} ${what}: waiting for the program`);
  try {
    const answer = await ask(path, body);
    tell(`${verb} ${what}: ${answer?.outcome ?? "done"}`);
  } catch (error) {
    tell(`${verb} ${what}: ${error.message}`, true);
  }
}

const site = { ask, act, tell, program: null, allFrozen: false, hasEnded: false, isPaused: false };
const list = new List(site);
site.rowOf = id => list.rows.get(id);
const views = { list, object: new ObjectPage(site), log: new LogView(site), records: new RecordsView(site),
  fleet: new FleetView(site), memory: new MemoryView(site) };
const { object } = views;
let view = list;

/** Shows the view that the address names after the hash sign: an object's id, `log`, `records`, `fleet`, `memory`, or nothing for the list. */
function route() {
  // An id has no characters that the address escapes.
  const name = location.hash.slice(1);
  const wanted = name === "" ? "list" : Object.hasOwn(views, name) ? name : "object";
  if (views[wanted] !== view) view.leave();
  view = views[wanted];
  for (const id of Object.keys(views)) byId(id).hidden = id !== wanted;
  document.querySelectorAll("nav a").forEach(link => {
    link.ariaCurrent = link.hash.slice(1) === name ? "page" : null;
  });
  tell("");
  view.show(name);
}

function showFrozen() {
  const button = byId("freeze-all");
  button.hidden = site.program.read_only;
  button.textContent = site.allFrozen ? "Thaw all" : "Freeze all";
  byId("all-frozen").hidden = !site.allFrozen;
}

byId("freeze-all").onclick = () => {
  const frozen = !site.allFrozen;
  const question = frozen ? "Freeze all objects, so that no policy changes any of them?"
    : "Thaw all objects, except those that were frozen one by one?";
  act(frozen ? "Freeze all" : "Thaw all", "objects", question, "freeze-all", { frozen });
};

/** Ends all requests. What was seen last stays readable. */
function end(why) {
  site.hasEnded = true;
  byId("ended").hidden = false;
  byId("ended").textContent = shown(why);
  say("status", "ended", true);
  byId("pause").hidden = true;
  document.querySelectorAll(".act").forEach(control => { control.disabled = true; });
  if (byId("confirm").open) byId("confirm").close("");
}

const pause = ms => new Promise(resolve => { setTimeout(resolve, ms); });
let resume = () => {};
let heard = performance.now();

/** Returns when the page is visible and not paused. Otherwise it asks for nothing. */
async function isWatched() {
  while (document.hidden || site.isPaused) {
    await new Promise(resolve => { resume = resolve; });
    heard = performance.now();
  }
}

document.addEventListener("visibilitychange", () => resume());
byId("pause").onclick = () => {
  site.isPaused = !site.isPaused;
  byId("pause").textContent = site.isPaused ? "Resume" : "Pause";
  if (site.isPaused) say("status", "paused");
  resume();
};

/** Says for how long there was no answer. */
function showSilence() {
  const silence = performance.now() - heard;
  const isSilent = silence > SILENCE_MS && !document.hidden && !site.isPaused && !site.hasEnded;
  if (isSilent) say("status", "not up to date: squall browse does not answer", true);
  write(byId("silence"), isSilent ? `since ${span(Math.floor(silence / 1000) * 1000)}` : "");
}

setInterval(showSilence, 1000);

/** Takes over an answer with rows. */
function update(answer) {
  site.allFrozen = answer.all_frozen;
  showFrozen();
  list.update(answer);
  object.sample();
  if (view !== list) view.update();
}

/** Asks for the changed rows once in each interval, until the program ends. */
async function follow() {
  const { version, read_only, interval_ms } = site.program;
  const live = `live, Squall ${version}${read_only ? ", read-only" : ""}`;
  let [number, connections] = [0, 1];
  for (;;) {
    await isWatched();
    try {
      const answer = await ask(`rows/${pageNumber}/${number}`);
      heard = performance.now();
      if (answer.ended) return end(answer.ended);
      if (answer.rows) {
        number = answer.number;
        if (answer.connections > connections) tell("connected to the program again");
        connections = answer.connections;
        update(answer);
      }
      if (!site.isPaused) say("status", answer.lost ? shown(`not up to date: ${answer.lost}`) : live, Boolean(answer.lost));
    } catch (error) {
      // Another squall browse has another token.
      if (error.status === 403) return end(error.message);
      say("status", shown(`not up to date: ${error.message}`), true);
    }
    await pause(interval_ms);
  }
}

async function start() {
  while (site.program === null) {
    try {
      site.program = await ask("program");
    } catch (error) {
      if (error.status === 403) return end(error.message);
      say("status", shown(error.message), true);
      await pause(1000);
    }
  }
  const { program, pid, read_only } = site.program;
  byId("program").textContent = `${shown(program)} (process ${pid})`;
  document.title = `${shown(program)} - squall browse`;
  byId("count-label").hidden = read_only;
  byId("no-count").hidden = !read_only;
  byId("pause").hidden = false;
  addEventListener("hashchange", route);
  route();
  await follow();
}

start();
