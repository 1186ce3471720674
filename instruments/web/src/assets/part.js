// Parts of a view that keep their elements, so that focus, selection, scroll and clicks are not lost at an update.

import { element, shown } from "./text.js";

/** Writes the text of an element, if it changed. */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Gives an element these children. The focus stays, and few elements are moved. */
export function arrange(node, children) {
  const { activeElement } = document;
  const wanted = new Set(children);
  [...node.children].forEach(child => { if (!wanted.has(child)) child.remove(); });
  children.forEach((child, index) => {
    const there = node.children[index];
    if (there === child) return;
    // The element that is there belongs further down.
    if (there?.nextElementSibling === child) node.append(there);
    else node.insertBefore(child, there ?? null);
  });
  if (document.activeElement !== activeElement && node.contains(activeElement)) activeElement.focus({ preventScroll: true });
}

/** A part that is drawn again only if its data changed. */
export class Part {
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

/** Names and values. Each value is a text, or an element that is made once. */
export class Facts {
  constructor() {
    this.node = element("dl");
    this.pairs = new Map();
  }

  update(facts) {
    const before = this.pairs;
    this.pairs = new Map(facts.map(([name]) => [name, before.get(name) ?? [element("dt", {}, name), element("dd")]]));
    facts.forEach(([name, value]) => {
      const place = this.pairs.get(name)[1];
      if (value instanceof Node) {
        if (place.firstChild !== value) place.replaceChildren(value);
      } else {
        write(place, shown(`${value}`));
      }
    });
    arrange(this.node, [...this.pairs.values()].flat());
  }
}

/** A table. `cells` makes the cells of an item: texts or elements. The rows of items that stay are kept. */
export class Table {
  constructor(heads, cells) {
    this.none = element("p", { className: "weak" }, "none");
    this.body = element("tbody");
    const line = element("tr", {}, ...heads.map(head => element("th", { scope: "col" }, head)));
    this.table = element("table", {}, element("thead", {}, line), this.body);
    this.node = element("div", { className: "table" }, this.none, this.table);
    this.cells = cells;
    this.rows = new Map();
  }

  update(items) {
    const before = this.rows;
    this.rows = new Map();
    for (const item of items) {
      let key = JSON.stringify(item);
      // Equal items have rows of their own.
      while (this.rows.has(key)) key += " ";
      this.rows.set(key, before.get(key) ?? this.row(item));
    }
    arrange(this.body, [...this.rows.values()]);
    this.none.hidden = items.length > 0;
    this.table.hidden = items.length === 0;
  }

  row(item) {
    return element("tr", {}, ...this.cells(item).map(cell => element("td", {}, cell)));
  }
}
