// The views of the whole program: decisions, swaps and changes, and its machine and memory.

import { drawMachine } from "./topology.js";
import { age, bytes, count, element, showAges, shown } from "./text.js";
import { Facts, Part, Table } from "./part.js";

const place = decision => decision.place === null ? "" : ` at VP ${decision.place}`;
const duration = swap => `${swap.total_us} \u00b5s, longest pause ${swap.longest_pause_us} \u00b5s`;
const link = (id, text) => element("a", { href: `#${id}` }, shown(text));

/** The column of the object, in tables of all objects of a site. */
const objectHead = site => site === null ? [] : ["object"];

function objectCell(site, { id, name }) {
  if (site === null) return [];
  if (id === null) return ["all objects"];
  const known = name ?? site.rowOf(id)?.name;
  return [link(id, known ? `${id} "${known}"` : id)];
}

/** Makes the table of decisions: of all objects of a site, or of one. */
export const decisionTable = site => new Table(
  ["when", ...objectHead(site), "decision", "reason", "swap", "readings"],
  one => [age(one.at_ms), ...objectCell(site, one), shown(`${one.from} to ${one.to}${place(one)}: ${one.verdict}`),
    shown(one.why), one.swap === null ? "" : duration(one.swap), shown(one.readings)]);

/** Makes the table of swaps: of all objects of a site, or of one. */
export const swapTable = site => new Table(
  ["when", ...objectHead(site), "swap", "outcome", "duration", "calls"],
  one => [age(one.began_ms), ...objectCell(site, one), shown(`${one.from} to ${one.to}`), shown(one.outcome),
    duration(one), `${one.forwarded} forwarded, ${one.blocked} waited`]);

/** Makes the table of changes by people: of all objects of a site, or of one. */
export const actionTable = site => new Table(
  ["when", ...objectHead(site), "change", "author", "outcome"],
  one => [age(one.at_ms), ...objectCell(site, one), shown(one.action), shown(one.author ?? "unknown"),
    shown(one.outcome)]);

/** A view that loads its data at each poll, with one request at a time, so that answers come in order. */
export class View {
  constructor(site, id) {
    this.site = site;
    this.section = document.getElementById(id);
    this.isShown = false;
    this.failure = element("p", { className: "bad", role: "status", hidden: true });
  }

  show() {
    this.isShown = true;
    this.load();
  }

  leave() {
    this.isShown = false;
  }

  /** Loads the data again, at most once in an interval. */
  update() {
    if (performance.now() - this.loadedAt >= this.site.program.poll_ms) this.load();
  }

  async load() {
    this.again = this.isLoading === true;
    if (this.again) return;
    this.isLoading = true;
    do {
      this.again = false;
      this.loadedAt = performance.now();
      const path = this.path();
      const isStill = () => this.isShown && this.path() === path;
      try {
        const answer = await this.site.ask(path);
        if (!isStill()) continue;
        this.failure.hidden = true;
        this.draw(answer);
        showAges(this.section, answer.now_ms);
      } catch (error) {
        if (isStill()) this.fail(error);
      }
    } while (this.again && this.isShown);
    this.isLoading = false;
  }

  /** Shows why the view is not up to date. The last data stays. */
  fail(error) {
    this.failure.hidden = false;
    this.failure.textContent = shown(error.message);
  }
}

/** The latest decisions, swaps and changes of all objects. */
export class LogView extends View {
  constructor(site) {
    super(site, "log");
    this.tables = { actions: actionTable(site), decisions: decisionTable(site), swaps: swapTable(site) };
    const { actions, decisions, swaps } = this.tables;
    const section = (title, table) => [element("h2", {}, title), table.node];
    this.section.append(this.failure, ...section("Latest changes by people", actions),
      ...section("Latest decisions", decisions), ...section("Latest swaps", swaps));
  }

  path() {
    return "log";
  }

  draw(answer) {
    Object.entries(this.tables).forEach(([name, table]) => table.update(answer[name].toReversed()));
  }
}

/** The topology, and the statistics of the locality allocator. */
export class MemoryView extends View {
  constructor(site) {
    super(site, "memory");
    this.machine = new Part(machine => drawMachine(machine));
    this.facts = new Facts();
    this.nodes = new Table(["node", "in slabs", "free, not returned to the system"],
      ({ node, used_bytes, free_bytes }) => [`${node}`, bytes(used_bytes), bytes(free_bytes)]);
    this.vps = new Table(["VP", "block size", "slabs", "blocks in use", "cached", "fills", "returned", "sent home"],
      ({ vp, local, block_bytes, slabs, used, cached, fills, returned, sent_home }) => [`${vp}`,
        `${bytes(block_bytes)}${local ? ", local" : ""}`, ...[slabs, used, cached, fills, returned, sent_home].map(count)]);
    const section = (title, node) => [element("h2", {}, title), node];
    this.section.append(this.failure, ...section("Machine", this.machine.node),
      ...section("Memory of the locality allocator", this.facts.node), ...section("Pages by node", this.nodes.node),
      ...section("Blocks by VP and size", this.vps.node));
  }

  path() {
    return "memory";
  }

  show() {
    this.machine.update(this.site.program.machine);
    super.show();
  }

  draw({ memory }) {
    const { mode, vp_bytes_max, nodes, large_count, large_bytes, vps } = memory;
    this.facts.update(mode === null ? [["allocator", "not used by this program"]] : [
      ["block caches", `${mode}, at most ${bytes(vp_bytes_max)} for each VP`],
      ["cached", bytes(vps.reduce((sum, vp) => sum + vp.cached_bytes, 0))],
      ["blocks to send home", count(vps.reduce((sum, vp) => sum + vp.outbox_count, 0))],
      ["large blocks", `${count(large_count)}, ${bytes(large_bytes)}`],
    ]);
    this.nodes.update(nodes.map((node, number) => ({ node: number, ...node })));
    this.vps.update(vps.flatMap(({ vp, classes }) => classes.map(one => ({ vp, ...one }))));
  }
}
