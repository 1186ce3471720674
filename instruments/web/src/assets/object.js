// One object: its representatives, decisions, attributes, swaps and changes, and the actions on it.

import { drawTopology } from "./topology.js";
import { ago, bytes, count, element, shown, span } from "./text.js";

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
const outcome = swap => `${swap.total_us} \u00b5s, longest pause ${swap.longest_pause_us} \u00b5s`;

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
    if (this.id !== id) this.section.replaceChildren();
    this.id = id;
    this.load();
  }

  /** Loads the object again if its row changed. */
  update({ full, rows, gone }) {
    if (this.id === null) return;
    if (full || gone.includes(this.id) || rows.some(row => row.id === this.id)) this.load();
  }

  async load() {
    const { id } = this;
    try {
      const answer = await this.site.ask(`object/${encodeURIComponent(id)}`);
      // Does not take away the text that the user is entering.
      const isTyping = this.section.contains(document.activeElement) && document.activeElement.matches("input, select");
      if (this.id === id && !isTyping) this.draw(answer);
    } catch (error) {
      if (this.id === id) this.section.replaceChildren(element("p", { className: "bad" }, shown(error.message)));
    }
  }

  async act(question, yes, action, body) {
    document.activeElement?.blur();
    await this.site.act(question, yes, `object/${encodeURIComponent(this.id)}/${action}`, body);
    if (this.id !== null) this.load();
  }

  draw({ detail, history, swaps, actions }) {
    const named = detail.name === null ? "" : ` "${shown(detail.name)}"`;
    const title = `${detail.interface}#${detail.id}${named}`;
    const section = (heading, ...children) => [element("h2", {}, heading), ...children];
    this.section.replaceChildren(
      element("h1", {}, title),
      facts([
        ["class", `${detail.class_path}, ${detail.kind}, ${detail.state}`],
        ["form", detail.form === null ? "not adaptive" : `${detail.form}, one of ${detail.forms.join(", ")}`],
        ["memory", `${bytes(detail.bytes)}, ${bytes(detail.value_bytes)} of it in fields`],
        ["misses", count(detail.misses)],
        ["contended/s", count(detail.contended_per_s)],
        ["made", `${span(detail.age_ms)} ago at ${detail.made_at}`],
        ["interface", detail.interface_source],
        ...(detail.stays === null ? [] : [["stays", detail.stays]]),
      ]),
      this.actions(detail, title),
      ...section(`Root and representatives: ${detail.reps}`, drawTopology(this.site.program.machine, detail)),
      ...section("Decisions", table(["when", "decision", "reason", "swap", "readings"], history.toReversed().map(one => [
        ago(one.at_ms), shown(`${one.from} to ${one.to}${place(one)}: ${one.verdict}`), shown(one.why),
        one.swap === null ? "" : outcome(one.swap), shown(one.readings),
      ]))),
      ...section("Attributes", this.attributes(detail)),
      ...section("Swaps", table(["when", "swap", "outcome", "duration", "calls"], swaps.toReversed().map(one => [
        ago(one.began_ms), shown(`${one.from} to ${one.to}`), shown(one.outcome), outcome(one),
        `${one.forwarded} forwarded, ${one.blocked} waited`,
      ]))),
      ...section("Changes by people", table(["when", "change", "author", "outcome"], actions.toReversed().map(one => [
        ago(one.at_ms), shown(one.action), shown(one.author ?? "unknown"), shown(one.outcome),
      ]))),
    );
  }

  /** Buttons that freeze and swap. */
  actions(detail, title) {
    if (this.site.program.read_only) return element("p", { className: "weak" }, "read-only");
    const line = element("div", { className: "acts" });
    if (detail.family !== null) {
      const yes = detail.frozen ? "Thaw" : "Freeze";
      const why = detail.frozen ? "Its policy may change it again." : "Its policy then leaves it as it is.";
      const button = element("button", { type: "button", id: "freeze" }, yes);
      button.onclick = () => this.act(`${yes} ${title}? ${why}`, yes, "freeze", { frozen: !detail.frozen });
      line.append(button);
    }
    if (detail.implementations.length > 0) {
      const choice = element("select", { id: "implementation", ariaLabel: "implementation" },
        ...detail.implementations.map(name => element("option", { value: name }, shown(name))));
      if (detail.implementations.includes(this.chosen)) choice.value = this.chosen;
      choice.onchange = () => { this.chosen = choice.value; };
      const button = element("button", { type: "button", id: "swap" }, "Swap");
      button.onclick = () => this.act(`Swap ${title} to ${choice.value}?`, "Swap", "swap", { implementation: choice.value });
      line.append(choice, button);
    }
    return line;
  }

  attributes(detail) {
    const rows = detail.attributes.map(attribute => {
      const { name, value, unit, range, about, from } = attribute;
      const cells = [shown(name), shown(`${value} ${unit}`), shown(from), shown(range), shown(attribute.default), shown(about)];
      if (this.site.program.read_only) return cells;
      const input = element("input", { value, size: 8, ariaLabel: `value of ${name}`, name });
      const button = element("button", { type: "button" }, "Set");
      button.onclick = () => this.act(`Set ${name} of object ${detail.id} to ${input.value}?`, "Set", "set",
        { name, value: input.value });
      return [...cells, element("span", { className: "acts" }, input, button)];
    });
    return table(["name", "value", "from", "range", "default", "about", ""], rows);
  }
}
