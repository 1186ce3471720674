// One object: its rates, representatives, decisions, swaps, changes and attributes, and the actions on it.

import { Curves } from "./curves.js";
import { View, actionTable, decisionTable, swapTable } from "./log.js";
import { drawReps } from "./topology.js";
import { bytes, count, element, shown, span } from "./text.js";
import { Facts, Part, Table, write } from "./part.js";

const inFront = ({ phase, target, replacement, method }) => `in front of ${target}, phase ${phase}`
  + (replacement === null ? "" : `; a swap to ${replacement}`) + (method === null ? "" : `; for calls of ${method}`);

/** Draws the object that this one is a part of, and its own parts, as links. */
function relations({ whole, linked, number }) {
  const line = ({ id, name, interface: kind, class: className }) => [element("a", { href: `#${id}` }, shown(`${kind}#${id}`)),
    shown(`${name === null ? "" : ` "${name}"`} (${className})`)];
  const list = element("ul", { id: "relations" });
  if (whole) list.append(element("li", {}, "part of ", ...line(whole)));
  for (const part of linked) list.append(element("li", {}, "part: ", ...line(part)));
  if (number > linked.length) list.append(element("li", {}, `and ${number - linked.length} more parts`));
  return whole || linked.length > 0 ? [element("h2", {}, "Part of and parts"), list] : [];
}

const process = ({ pid, uid }) => pid === null && uid === null ? "the other end of a socket pair"
  : (pid === null ? "a process of another namespace" : `process ${pid}`) + (uid === null ? "" : `, user ${uid}`);

const without = methods => methods.length === 0 ? "" : `; denied: ${methods.join(", ")}`;

const fromOther = ({ name, calls, is_connected, ...server }) => `"${name}" from ${process(server)}; calls: ${count(calls)}`
  + (is_connected ? "" : "; it is gone, and the program must import the object again");

/** Draws the names by which other processes call the object, and the processes that do. */
function exported(exports) {
  const caller = ({ number, calls, denied, ...other }, all) => element("li", {}, shown(
    `caller ${number}: ${process(other)}; calls: ${count(calls)}${without(denied.filter(method => !all.includes(method)))}`));
  const line = ({ name, denied, callers, callers_count: number }) => element("li", {}, shown(`"${name}"; callers: ${number}${without(denied)}`),
    element("ul", {}, ...callers.map(one => caller(one, denied))));
  return exports.length === 0 ? [] : [element("h2", {}, "Exported to other processes"), element("ul", { id: "exports" }, ...exports.map(line))];
}

/** The attributes. A value that the user is entering stays. */
class Attributes {
  constructor(set, unset) {
    this.node = element("div");
    this.set = set;
    this.unset = unset;
    this.cells = new Map();
  }

  update(attributes, mayAct) {
    const text = JSON.stringify([mayAct, attributes.map(({ name, unit, range, about }) => [name, unit, range, about])]);
    if (text !== this.text) {
      this.text = text;
      this.cells.clear();
      const heads = ["name", "value", "from", "range", "default", "about", ""];
      const table = new Table(heads, attribute => this.row(attribute, mayAct));
      table.update(attributes);
      this.node.replaceChildren(table.node);
    }
    for (const { name, value, unit, from } of attributes) {
      const cell = this.cells.get(name);
      write(cell.value, shown(`${value} ${unit}`));
      write(cell.from, shown(from));
      if (cell.input?.value === cell.known) cell.input.value = value;
      cell.known = value;
      if (cell.unset) cell.unset.hidden = from !== "instance";
    }
  }

  row(attribute, mayAct) {
    const { name } = attribute;
    const cell = { value: element("span"), from: element("span"), input: null, unset: null, known: attribute.value };
    this.cells.set(name, cell);
    const cells = [shown(name), cell.value, cell.from, shown(attribute.range), shown(attribute.default), shown(attribute.about)];
    if (!mayAct || attribute.range === "read only") return cells;
    cell.input = element("input", { value: attribute.value, size: 8, ariaLabel: `value of ${name}`, name, className: "act" });
    const button = element("button", { type: "button", className: "act" }, "Set");
    button.onclick = () => this.set(name, cell.known, cell.input.value);
    if (this.unset !== null) {
      const title = "ends the object's own value, so that its class's value or the default holds";
      cell.unset = element("button", { type: "button", className: "act unset", title }, "Unset");
      cell.unset.onclick = () => this.unset(name, cell.known);
    }
    return [...cells, element("span", { className: "acts" }, cell.input, button, cell.unset)];
  }
}

export class ObjectPage extends View {
  constructor(site) {
    super(site, "object");
    this.id = null;
  }

  leave() {
    super.leave();
    this.id = null;
    this.section.replaceChildren();
  }

  show(id) {
    if (this.id !== id) this.open(id);
    super.show();
  }

  path() {
    return `object/${encodeURIComponent(this.id)}`;
  }

  /** Opens another object. Shows the data of its row until the program has sent the rest. */
  open(id) {
    this.id = id;
    this.isGone = false;
    this.chosen = null;
    const { program } = this.site;
    const unset = program.operations?.includes("unset") ?? false;
    this.heading = element("h1");
    this.parts = {
      facts: new Facts(),
      actions: new Part(data => [this.actions(data)]),
      curves: new Curves(),
      drawing: new Part(data => drawReps(program.machine, data)),
      reps: new Table(["cluster", "made by VP", "held by calls"],
        rep => [`${rep.cluster ?? "-"}`, `${rep.vp ?? "-"}`, `${rep.holds}`]),
      relations: new Part(relations),
      exported: new Part(exported),
      decisions: decisionTable(null),
      swaps: swapTable(null),
      actionLog: actionTable(null),
      attributes: new Attributes((name, before, value) => this.act("Set", `${name} of `,
        `Set ${name} of ${this.title} from ${before} to ${value}?`, "set", { name, value }),
      !unset ? null : (name, value) => this.act("Unset", `${name} of `,
        `End the own value ${value} of ${name} of ${this.title}?`, "unset", { name })),
    };
    const { parts } = this;
    this.repsHeading = element("h2");
    const list = element("details", {}, element("summary", {}, "as a list"), parts.reps.node);
    const section = (title, part) => [element("h2", {}, title), part.node];
    this.body = element("div", { hidden: true }, parts.actions.node, parts.curves.node,
      this.repsHeading, parts.drawing.node, list, parts.relations.node, parts.exported.node,
      ...section("Decisions", parts.decisions), ...section("Swaps", parts.swaps),
      ...section("Changes by people", parts.actionLog), ...section("Attributes", parts.attributes));
    this.section.replaceChildren(this.heading, this.failure, parts.facts.node, this.body);
    this.failure.hidden = true;
    this.sample();
    const row = this.site.rowOf(id);
    this.drawTitle(row ?? { id, interface: "object", name: null });
    if (row) parts.facts.update([["class", row.className], ["form", row.form ?? "not adaptive"], ["memory", bytes(row.bytes)]]);
  }

  drawTitle({ id, name, interface: kind }) {
    this.title = `${kind}#${shown(id)}${name === null ? "" : ` "${shown(name)}"`}`;
    write(this.heading, this.title);
  }

  /** Takes the rates of the object from its latest row. */
  sample() {
    const row = this.id === null ? undefined : this.site.rowOf(this.id);
    if (row) this.parts.curves.add(row, performance.now());
  }

  /** Loads the object again. Not all that the page shows is in the object's row. */
  load() {
    return this.isGone || this.site.hasEnded ? undefined : super.load();
  }

  fail(error) {
    super.fail(error);
    this.isGone = error.status === 404;
    if (this.isGone) this.section.querySelectorAll(".act").forEach(control => { control.disabled = true; });
  }

  async act(verb, what, question, action, body) {
    const path = `${this.path()}/${action}`;
    await this.site.act(verb, `${what}${this.title}`, question, path, body);
    if (this.isShown) this.load();
  }

  draw({ detail, history, swaps, actions }) {
    this.body.hidden = false;
    this.drawTitle(detail);
    const { parts, site } = this;
    const mayAct = !site.program.read_only && !site.hasEnded;
    const { reps, kind, rep_list, translations } = detail;
    parts.facts.update([
      ["class", `${detail.class_path}, ${kind}, ${detail.state}`],
      ["form", detail.form === null ? "not adaptive" : `${detail.form}, one of ${detail.forms.join(", ")}`],
      ...(detail.dry_run ? [["dry run", "its policy only records its decisions"]] : []),
      ...(detail.stays === null ? [] : [["stays", detail.stays]]),
      ...(detail.mediator ? [["mediator", inFront(detail.mediator)]] : []),
      ...(detail.import ? [["imported", fromOther(detail.import)]] : []),
      ["memory", `${bytes(detail.bytes)}, ${bytes(detail.value_bytes)} of it in fields; blocks that they allocate, such as the entries of a map, are not counted`],
      ["misses", count(detail.misses)],
      ["made", `${span(detail.age_ms)} ago at ${detail.made_at}`],
      ["interface", detail.interface_source],
    ]);
    // An older program does not send the object's own freeze apart from the freeze of all objects.
    const own = detail.frozen_all === undefined ? detail.attributes.find(({ name }) => name === "freeze") : undefined;
    const isFrozen = own === undefined ? detail.frozen : own.value === "true";
    parts.actions.update({ mayAct, form: detail.form, implementations: detail.implementations, isFrozen,
      withAll: site.allFrozen, freezer: isFrozen ? detail.frozen_by?.author ?? null : null });
    write(this.repsHeading, `Root and representatives: ${reps}`);
    parts.drawing.update({ reps, kind, rep_list, translations });
    parts.reps.update(rep_list);
    parts.relations.update({ whole: detail.whole, linked: detail.parts ?? [], number: detail.parts_count ?? 0 });
    parts.exported.update(detail.exports ?? []);
    parts.decisions.update(history.toReversed());
    parts.swaps.update(swaps.toReversed());
    parts.actionLog.update(actions.toReversed());
    parts.attributes.update(detail.attributes, mayAct);
  }

  /** Buttons that freeze and swap. */
  actions({ mayAct, form, implementations, isFrozen, withAll, freezer }) {
    const isAdaptive = form !== null;
    const line = element("div", { className: "acts" });
    if (!mayAct) return line;
    if (isAdaptive) {
      const verb = isFrozen ? "Thaw" : "Freeze";
      const later = withAll ? " All objects stay frozen until all are thawed." : "";
      const question = isFrozen ? `Thaw ${this.title}, so that its policy may change it?${later}`
        : `Freeze ${this.title}, so that its policy does not change it?`;
      const button = element("button", { type: "button", id: "freeze", className: "act" }, verb);
      button.onclick = () => this.act(verb, "", question, "freeze", { frozen: !isFrozen });
      line.append(button);
      if (isFrozen) line.append(element("span", { className: "mark" }, freezer === null ? "frozen" : `frozen by ${shown(freezer)}`));
    }
    if (implementations.length > 0) {
      const choice = element("select", { id: "implementation", className: "act", ariaLabel: "implementation" },
        ...implementations.map(name => element("option", { value: name }, shown(name))));
      const other = implementations.find(name => name !== form) ?? implementations[0];
      choice.value = implementations.includes(this.chosen) ? this.chosen : other;
      choice.onchange = () => { this.chosen = choice.value; };
      const button = element("button", { type: "button", id: "swap", className: "act" }, "Swap");
      const later = isAdaptive && !isFrozen && !withAll ? " Its policy may swap it back later, unless it is frozen." : "";
      button.onclick = () => this.act("Swap", "", `Swap ${this.title} to ${choice.value}?${later}`, "swap",
        { implementation: choice.value });
      line.append(choice, button);
    }
    return line;
  }
}
