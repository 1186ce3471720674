// One object: its representatives, decisions, attributes, swaps and changes, and the actions on it.

import { drawTopology } from "./topology.js";
import { age, bytes, count, element, showAges, shown, span } from "./text.js";

function table(heads, rows) {
  if (rows.length === 0) return element("p", { className: "weak" }, "none");
  const line = (tag, cells) => element("tr", {}, ...cells.map(cell => element(tag, {}, cell)));
  return element("table", {}, line("th", heads), ...rows.map(cells => line("td", cells)));
}

function facts(pairs) {
  const made = pairs.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, shown(`${text}`))]);
  return element("dl", {}, ...made);
}

const place = decision => decision.place === null ? "" : ` at VP ${decision.place}`;
const inFront = ({ phase, target, replacement, method }) => `in front of ${target}, phase ${phase}`
  + (replacement === null ? "" : `; a swap to ${replacement}`) + (method === null ? "" : `; for calls of ${method}`);
const outcome = swap => `${swap.total_us} \u00b5s, longest pause ${swap.longest_pause_us} \u00b5s`;

/** A part of the page. It is drawn again only if its data changed, so that focus and selection stay. */
class Part {
  constructor(draw) {
    this.node = element("div");
    this.draw = draw;
  }

  update(data) {
    const text = JSON.stringify(data);
    if (text === this.text) return;
    this.text = text;
    const { activeElement } = document;
    const focused = this.node.contains(activeElement) ? activeElement.id : "";
    this.node.replaceChildren(...this.draw(data));
    if (focused !== "") document.getElementById(focused)?.focus();
  }
}

/** The attributes. A value that the user is entering stays. */
class Attributes {
  constructor(set) {
    this.node = element("div");
    this.set = set;
    this.cells = new Map();
  }

  update(attributes, mayAct) {
    const text = JSON.stringify([mayAct, attributes.map(({ name, unit, range, about }) => [name, unit, range, about])]);
    if (text !== this.text) {
      this.text = text;
      this.cells.clear();
      const rows = attributes.map(attribute => this.row(attribute, mayAct));
      this.node.replaceChildren(table(["name", "value", "from", "range", "default", "about", ""], rows));
    }
    for (const { name, value, unit, from } of attributes) {
      const cell = this.cells.get(name);
      const texts = [shown(`${value} ${unit}`), shown(from)];
      [cell.value, cell.from].forEach((node, index) => {
        if (node.textContent !== texts[index]) node.textContent = texts[index];
      });
      if (cell.input?.value === cell.known) cell.input.value = value;
      cell.known = value;
    }
  }

  row(attribute, mayAct) {
    const { name } = attribute;
    const cell = { value: element("span"), from: element("span"), input: null, known: attribute.value };
    this.cells.set(name, cell);
    const cells = [shown(name), cell.value, cell.from, shown(attribute.range), shown(attribute.default), shown(attribute.about)];
    if (!mayAct) return cells;
    cell.input = element("input", { value: attribute.value, size: 8, ariaLabel: `value of ${name}`, name, className: "act" });
    const button = element("button", { type: "button", className: "act" }, "Set");
    button.onclick = () => this.set(name, cell.known, cell.input.value);
    return [...cells, element("span", { className: "acts" }, cell.input, button)];
  }
}

export class ObjectPage {
  constructor(site) {
    this.site = site;
    this.section = document.getElementById("object");
    this.id = null;
  }

  leave() {
    this.id = null;
    this.section.replaceChildren();
  }

  show(id) {
    if (this.id === id) return;
    this.id = id;
    this.isGone = false;
    this.title = `object ${shown(id)}`;
    this.failure = element("p", { className: "bad", role: "status", hidden: true });
    this.parts = {
      facts: new Part(data => [element("h1", {}, this.title), facts(data)]),
      actions: new Part(data => [this.actions(data)]),
      reps: new Part(detail => this.reps(detail)),
      relations: new Part(relations => [element("h2", {}, "Part of and parts"), this.relations(relations)]),
      decisions: new Part(history => [element("h2", {}, "Decisions"),
        table(["when", "decision", "reason", "swap", "readings"], history.toReversed().map(one => [
          age(one.at_ms), shown(`${one.from} to ${one.to}${place(one)}: ${one.verdict}`), shown(one.why),
          one.swap === null ? "" : outcome(one.swap), shown(one.readings),
        ]))]),
      attributes: new Attributes((name, before, value) => this.act(
        `Set ${name} of ${this.title} from ${before} to ${value}?`, "Set", "set", { name, value })),
      swaps: new Part(swaps => [element("h2", {}, "Swaps"),
        table(["when", "swap", "outcome", "duration", "calls"], swaps.toReversed().map(one => [
          age(one.began_ms), shown(`${one.from} to ${one.to}`), shown(one.outcome), outcome(one),
          `${one.forwarded} forwarded, ${one.blocked} waited`,
        ]))]),
      changes: new Part(actions => [element("h2", {}, "Changes by people"),
        table(["when", "change", "author", "outcome"], actions.toReversed().map(one => [
          age(one.at_ms), shown(one.action), shown(one.author ?? "unknown"), shown(one.outcome),
        ]))]),
    };
    const { facts: top, actions, reps, relations, decisions, attributes, swaps, changes } = this.parts;
    const heading = element("h2", {}, "Attributes");
    this.body = element("div", { hidden: true }, ...[top, actions, reps, relations, decisions].map(part => part.node), heading,
      ...[attributes, swaps, changes].map(part => part.node));
    this.section.replaceChildren(this.failure, this.body);
    this.load();
  }

  /** Loads the object again. Not all that the page shows is in the object's row. */
  update() {
    if (this.id !== null && !this.isGone) this.load();
  }

  /** Loads the object. There is one request at a time, so that answers come in order. */
  async load() {
    this.again = this.isLoading;
    if (this.isLoading) return;
    this.isLoading = true;
    do {
      this.again = false;
      const { id } = this;
      try {
        const answer = await this.site.ask(`object/${encodeURIComponent(id)}`);
        if (this.id === id) this.draw(answer);
      } catch (error) {
        if (this.id === id) this.fail(error);
      }
    } while (this.again && this.id !== null);
    this.isLoading = false;
  }

  /** Shows why the page is not up to date. The last data stays. */
  fail(error) {
    this.failure.hidden = false;
    this.failure.textContent = shown(error.message);
    this.isGone = error.status === 404;
    if (this.isGone) this.section.querySelectorAll(".act").forEach(control => { control.disabled = true; });
  }

  async act(question, yes, action, body) {
    await this.site.act(this.title, question, yes, `object/${encodeURIComponent(this.id)}/${action}`, body);
    this.update();
  }

  draw({ detail, history, swaps, actions, now_ms }) {
    const named = detail.name === null ? "" : ` "${shown(detail.name)}"`;
    this.title = `${detail.interface}#${detail.id}${named}`;
    this.failure.hidden = true;
    this.body.hidden = false;
    const { parts, site } = this;
    const mayAct = !site.program.read_only && !site.hasEnded;
    parts.facts.update([
      ["class", `${detail.class_path}, ${detail.kind}, ${detail.state}`],
      ["form", detail.form === null ? "not adaptive" : `${detail.form}, one of ${detail.forms.join(", ")}`],
      ["memory", `${bytes(detail.bytes)}, ${bytes(detail.value_bytes)} of it in fields`],
      ["misses", count(detail.misses)],
      ["contended/s", count(detail.contended_per_s)],
      ["made", `${span(detail.age_ms)} ago at ${detail.made_at}`],
      ["interface", detail.interface_source],
      ...(detail.dry_run ? [["dry run", "its policy only records its decisions"]] : []),
      ...(detail.mediator ? [["mediator", inFront(detail.mediator)]] : []),
      ...(detail.stays === null ? [] : [["stays", detail.stays]]),
    ]);
    const own = detail.attributes.find(attribute => attribute.name === "freeze");
    parts.actions.update({ mayAct, isAdaptive: detail.form !== null, implementations: detail.implementations,
      isFrozen: own === undefined ? detail.frozen : own.value === "true", withAll: site.allFrozen });
    const { reps, kind, rep_list, translations } = detail;
    parts.reps.update({ reps, kind, rep_list, translations });
    parts.relations.update({ whole: detail.whole, linked: detail.parts, number: detail.parts_count });
    parts.decisions.update(history);
    parts.attributes.update(detail.attributes, mayAct);
    parts.swaps.update(swaps);
    parts.changes.update(actions);
    showAges(this.section, now_ms);
  }

  reps(detail) {
    const rows = detail.rep_list.map(rep => [`${rep.cluster ?? "-"}`, `${rep.vp ?? "-"}`, `${rep.holds}`]);
    const list = element("details", {}, element("summary", {}, "as a list"),
      table(["cluster", "made by VP", "held by calls"], rows));
    return [element("h2", {}, `Root and representatives: ${detail.reps}`),
      drawTopology(this.site.program.machine, detail), list].filter(node => node !== null);
  }

  /** Draws the object that this one is a part of, and its own parts, as links. */
  relations({ whole, linked, number }) {
    if (!whole && linked.length === 0) return element("p", { className: "weak" }, "none");
    const line = object => {
      const name = object.name === null ? "" : ` "${shown(object.name)}"`;
      return [element("a", { href: `#${object.id}` }, `${object.interface}#${object.id}`), `${name} (${shown(object.class)})`];
    };
    const list = element("ul", { id: "relations" });
    if (whole) list.append(element("li", {}, "part of ", ...line(whole)));
    for (const part of linked) list.append(element("li", {}, "part: ", ...line(part)));
    if (number > linked.length) list.append(element("li", {}, `and ${number - linked.length} more parts`));
    return list;
  }

  actions({ mayAct, isAdaptive, implementations, isFrozen, withAll }) {
    const line = element("div", { className: "acts" });
    if (!mayAct) return line;
    if (isAdaptive) {
      const yes = isFrozen ? "Thaw" : "Freeze";
      const question = isFrozen ? `Thaw ${this.title}, so that its policy may change it?`
        : `Freeze ${this.title}, so that its policy does not change it?`;
      const button = element("button", { type: "button", id: "freeze", className: "act" }, yes);
      button.onclick = () => this.act(question, yes, "freeze", { frozen: !isFrozen });
      line.append(button);
      if (withAll) line.append(element("span", { className: "weak" }, "frozen with all objects, until all are thawed"));
    }
    if (implementations.length > 0) {
      const choice = element("select", { id: "implementation", className: "act", ariaLabel: "implementation" },
        ...implementations.map(name => element("option", { value: name }, shown(name))));
      if (implementations.includes(this.chosen)) choice.value = this.chosen;
      choice.onchange = () => { this.chosen = choice.value; };
      const button = element("button", { type: "button", id: "swap", className: "act" }, "Swap");
      const later = isAdaptive && !isFrozen && !withAll ? " Its policy may swap it back later, unless it is frozen." : "";
      button.onclick = () => this.act(`Swap ${this.title} to ${choice.value}?${later}`, "Swap", "swap",
        { implementation: choice.value });
      line.append(choice, button);
    }
    return line;
  }
}
