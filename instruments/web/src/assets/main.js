// The page: connection to the server, the choice of the view, and requests that act.

import { List } from "./list.js";
import { ObjectPage } from "./object.js";
import { element, shown } from "./text.js";

const byId = id => document.getElementById(id);
const token = location.pathname.split("/")[1];

/** Asks the server. Throws an error with the server's reason. */
async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "x-squall-token": token, "content-type": "application/json" },
    body: JSON.stringify(body),
  };
  const response = await fetch(path, options);
  const answer = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

/** Shows the outcome of the last action. */
function tell(text, isBad = false) {
  byId("message").replaceChildren(element("span", { className: isBad ? "bad" : "" }, shown(text)));
}

/** Asks the user for a confirmation, then the server for the change. */
async function act(question, yes, path, body) {
  const dialog = byId("confirm");
  byId("question").textContent = shown(question);
  byId("yes").textContent = yes;
  const agreed = await new Promise(resolve => {
    byId("yes").onclick = () => resolve(true);
    byId("no").onclick = () => resolve(false);
    dialog.oncancel = () => resolve(false);
    dialog.showModal();
  });
  dialog.close();
  if (!agreed) return false;
  try {
    const answer = await ask(path, body);
    tell(answer?.outcome ? `swap: ${answer.outcome}` : `${yes}: done`);
  } catch (error) {
    tell(error.message, true);
  }
  return true;
}

const site = { ask, act, tell, program: null, allFrozen: false };
const list = new List(site);
const page = new ObjectPage(site);

/** Shows the list, or the object that the address names after the hash sign. */
function route() {
  const id = decodeURIComponent(location.hash.slice(1));
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
}

byId("freeze-all").onclick = () => {
  const frozen = !site.allFrozen;
  const question = frozen ? "Freeze all objects, so that no policy changes any of them?"
    : "Thaw all objects, except those that were frozen one by one?";
  act(question, frozen ? "Freeze all" : "Thaw all", "freeze-all", { frozen });
};

function end(why) {
  byId("ended").hidden = false;
  byId("ended").textContent = shown(why);
  byId("status").textContent = "ended";
  document.querySelectorAll("main button, main input, main select").forEach(control => { control.disabled = true; });
}

async function start() {
  try {
    site.program = await ask("program");
  } catch (error) {
    return end(error.message);
  }
  const { program, pid, version, read_only } = site.program;
  byId("program").textContent = `${shown(program)} (process ${pid})`;
  document.title = `${shown(program)} - squall browse`;
  const events = new EventSource("events");
  events.addEventListener("rows", event => {
    const update = JSON.parse(event.data);
    byId("status").textContent = `live, Squall ${version}${read_only ? ", read-only" : ""}`;
    site.allFrozen = update.all_frozen;
    showFrozen();
    list.update(update);
    page.update(update);
  });
  events.addEventListener("ended", event => {
    events.close();
    end(JSON.parse(event.data).why);
  });
  events.onerror = () => { byId("status").textContent = "no connection to squall browse"; };
  addEventListener("hashchange", route);
  route();
}

start();
