// The page: requests to the server, the choice of the view, and changes after a confirmation.

import { List } from "./list.js";
import { ObjectPage } from "./object.js";
import { element, shown } from "./text.js";

const TIMEOUT_MS = 15_000;

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
  const answer = await response.json().catch(() => ({ error: `the answer to ${path} has the status ${response.status}` }));
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
function write(id, text, isBad) {
  const place = byId(id);
  if (place.textContent !== text) place.replaceChildren(element("span", { className: isBad ? "bad" : "" }, text));
}

/** Shows the outcome of the last change. */
const tell = (text, isBad = false) => write("message", shown(text), isBad);

/** Asks the user for a confirmation, then the server for the change. */
async function act(what, question, yes, path, body) {
  const dialog = byId("confirm");
  if (dialog.open) return;
  byId("question").textContent = shown(question);
  byId("author").textContent = shown(`The program records the author: ${site.program.author}`);
  byId("yes").textContent = yes;
  dialog.returnValue = "";
  dialog.showModal();
  await new Promise(resolve => dialog.addEventListener("close", resolve, { once: true }));
  if (dialog.returnValue !== "yes") return;
  tell(`${yes}, ${what}: waiting for the program`);
  try {
    const answer = await ask(path, body);
    tell(`${yes}, ${what}: ${answer?.outcome ?? "done"}`);
  } catch (error) {
    tell(`${yes}, ${what}: ${error.message}`, true);
  }
}

const site = { ask, act, tell, program: null, allFrozen: false, hasEnded: false };
const list = new List(site);
const page = new ObjectPage(site);

/** Shows the list, or the object that the address names after the hash sign. */
function route() {
  // An id has no characters that the address escapes.
  const id = location.hash.slice(1);
  byId("list").hidden = id !== "";
  byId("object").hidden = id === "";
  if (id === "") {
    page.leave();
    list.draw();
  } else {
    page.show(id);
  }
}

function showFrozen() {
  const button = byId("freeze-all");
  button.hidden = site.program.read_only;
  button.textContent = site.allFrozen ? "Thaw all" : "Freeze all";
  write("all-frozen", site.allFrozen ? "all objects are frozen" : "");
}

byId("freeze-all").onclick = () => {
  const frozen = !site.allFrozen;
  const question = frozen ? "Freeze all objects, so that no policy changes any of them?"
    : "Thaw all objects, except those that were frozen one by one?";
  act("all objects", question, frozen ? "Freeze all" : "Thaw all", "freeze-all", { frozen });
};

/** Ends all requests. What was seen last stays readable. */
function end(why) {
  site.hasEnded = true;
  byId("ended").hidden = false;
  byId("ended").textContent = shown(why);
  write("status", "ended", true);
  document.querySelectorAll(".act").forEach(control => { control.disabled = true; });
  if (byId("confirm").open) byId("confirm").close("");
}

const pause = ms => new Promise(resolve => { setTimeout(resolve, ms); });

/** Returns when the page is visible. A hidden page asks for nothing. */
async function visible() {
  while (document.hidden) {
    await new Promise(resolve => document.addEventListener("visibilitychange", resolve, { once: true }));
  }
}

/** Takes over an answer with rows. */
function update(answer) {
  site.allFrozen = answer.all_frozen;
  showFrozen();
  list.update(answer);
  page.update();
}

/** Asks for the changed rows once in each interval, until the program ends. */
async function follow() {
  const { version, read_only, interval_ms } = site.program;
  const live = `live, Squall ${version}${read_only ? ", read-only" : ""}`;
  let [number, connections] = [0, 1];
  for (;;) {
    await visible();
    try {
      const answer = await ask(`rows/${pageNumber}/${number}`);
      if (answer.ended) return end(answer.ended);
      if (answer.rows) {
        number = answer.number;
        if (answer.connections > connections) tell("connected to the program again");
        connections = answer.connections;
        update(answer);
      }
      write("status", answer.lost ? shown(`not up to date: ${answer.lost}`) : live, Boolean(answer.lost));
    } catch (error) {
      // Another squall browse has another token.
      if (error.status === 403) return end(error.message);
      write("status", shown(`not up to date: ${error.message}`), true);
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
      write("status", shown(error.message), true);
      await pause(1000);
    }
  }
  const { program, pid, read_only } = site.program;
  byId("program").textContent = `${shown(program)} (process ${pid})`;
  document.title = `${shown(program)} - squall browse`;
  byId("count-label").hidden = read_only;
  byId("no-count").hidden = !read_only;
  addEventListener("hashchange", route);
  route();
  await follow();
}

start();
