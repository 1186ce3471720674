// The list of objects. Only the rows in view are elements, so that ten thousand objects cost no more than fifty.

import { bytes, count, element, shown } from "./text.js";

const ROW = 28;
const COUNTED_MAX = 8;
const COUNT_EVERY_MS = 500;

const className = row => row.family ? row.family : `${row.interface} (${row.class})`;
const decision = row => row.last_decision ?? (row.stays ? `stays ${row.form}: ${row.stays}` : "");
const byNumber = (one, other) => one.slot - other.slot || one.generation - other.generation;

/** The form, and states that need attention. */
function form(row) {
  const marks = [row.form ?? row.state];
  if (row.form !== null && row.state !== "live") marks.push(row.state);
  if (row.frozen) marks.push("frozen");
  if (row.dry_run) marks.push("dry run");
  return marks.join(", ");
}

/** The columns: title, text of a row, amount to sort by (descending) or text (ascending), and whether a number. */
const COLUMNS = [
  { title: "name", text: row => row.name === null ? "-" : shown(row.name), key: row => row.name ?? "\uffff" },
  { title: "id", text: row => row.id, key: null },
  { title: "class", text: row => shown(className(row)), key: className },
  { title: "calls/s", text: row => count(row.calls_per_s), key: row => row.calls_per_s ?? -1, number: true },
  { title: "misses/s", text: row => row.misses_per_s === null ? `(${count(row.misses)})` : count(row.misses_per_s),
    key: row => row.misses_per_s ?? 0, number: true },
  { title: "contended/s", text: row => count(row.contended_per_s), key: row => row.contended_per_s ?? -1, number: true },
  { title: "reps", text: row => `${row.reps}`, key: row => row.reps, number: true },
  { title: "memory", text: row => bytes(row.bytes), key: row => row.bytes, number: true },
  { title: "swaps", text: row => `${row.swaps}`, key: row => row.swaps, number: true },
  { title: "form", text: row => shown(form(row)), key: form },
  { title: "last decision", text: row => shown(decision(row)), key: decision },
];

export class List {
  constructor(site) {
    this.site = site;
    this.rows = new Map();
    this.chosen = [];
    this.drawn = new Map();
    this.sort = COLUMNS[5];
    this.backwards = false;
    this.turn = 0;
    const find = id => document.getElementById(id);
    Object.assign(this, { search: find("search"), classes: find("class"), counting: find("counting"),
      total: find("total"), scroll: find("scroll"), body: find("rows"), heads: find("heads"), table: find("table") });
    find("tools").onsubmit = event => event.preventDefault();
    this.search.oninput = () => this.choose();
    this.classes.onchange = () => this.choose();
    this.scroll.onscroll = () => this.draw();
    addEventListener("resize", () => this.draw());
    setInterval(() => this.countCalls(), COUNT_EVERY_MS);
    this.drawHeads();
  }

  /** Takes over changed rows. */
  update({ full, rows, gone }) {
    if (!full && rows.length === 0 && gone.length === 0) return;
    if (full) this.rows.clear();
    gone.forEach(id => this.rows.delete(id));
    for (const row of rows) {
      row.words = `${row.name ?? ""}\n${row.id}`.toLowerCase();
      [row.slot, row.generation] = row.id.split(".").map(Number);
      this.rows.set(row.id, row);
    }
    this.listClasses();
    this.choose();
  }

  listClasses() {
    const counts = new Map();
    for (const row of this.rows.values()) counts.set(className(row), (counts.get(className(row)) ?? 0) + 1);
    const sorted = [...counts].sort(([one], [other]) => one < other ? -1 : 1);
    const wanted = [["", "all classes"], ...sorted.map(([name, number]) => [name, `${shown(name)}: ${number}`])];
    const text = JSON.stringify(wanted);
    if (text === this.classText) return;
    this.classText = text;
    const { value } = this.classes;
    this.classes.replaceChildren(...wanted.map(([name, title]) => element("option", { value: name }, title)));
    this.classes.value = counts.has(value) ? value : "";
  }

  /** Filters and sorts. */
  choose() {
    const words = this.search.value.toLowerCase();
    const { value } = this.classes;
    const { key } = this.sort;
    this.chosen = [...this.rows.values()].filter(row =>
      row.words.includes(words) && (value === "" || className(row) === value));
    const compare = key === null ? byNumber : (one, other) => {
      const [left, right] = [key(one), key(other)];
      if (left === right) return byNumber(one, other);
      return (left < right) === (typeof left === "string") ? -1 : 1;
    };
    this.chosen.sort(compare);
    if (this.backwards) this.chosen.reverse();
    this.table.ariaRowCount = `${this.chosen.length + 1}`;
    this.total.textContent = this.chosen.length === this.rows.size ? `${this.rows.size} objects`
      : `${this.chosen.length} of ${this.rows.size} objects`;
    this.draw();
  }

  drawHeads() {
    this.heads.replaceChildren(...COLUMNS.map((column, index) => {
      const isSorted = column === this.sort;
      const isDescending = (column.number === true) !== this.backwards;
      const mark = !isSorted ? "" : this.backwards ? " \u25b4" : " \u25be";
      const button = element("button", { type: "button", className: column.number ? "number" : "" }, column.title + mark);
      button.onclick = () => {
        this.backwards = column === this.sort && !this.backwards;
        this.sort = column;
        this.drawHeads();
        this.heads.children[index].firstChild.focus();
        this.choose();
      };
      const ariaSort = !isSorted ? "none" : isDescending ? "descending" : "ascending";
      return element("span", { role: "columnheader", ariaSort }, button);
    }));
  }

  /** Returns the rows in view. */
  inView() {
    const first = Math.max(0, Math.floor(this.scroll.scrollTop / ROW) - 2);
    const number = Math.ceil(this.scroll.clientHeight / ROW) + 4;
    return { first, rows: this.chosen.slice(first, first + number) };
  }

  /** Draws the rows in view. A row that stays in view keeps its elements, so that a click or the focus is not lost. */
  draw() {
    this.body.style.height = `${this.chosen.length * ROW}px`;
    const { first, rows } = this.inView();
    const before = this.drawn;
    this.drawn = new Map(rows.map(row => [row.id, before.get(row.id) ?? this.make(row.id)]));
    before.forEach((one, id) => { if (!this.drawn.has(id)) one.remove(); });
    rows.forEach((row, index) => {
      const one = this.drawn.get(row.id);
      one.style.top = `${(first + index) * ROW}px`;
      one.ariaRowIndex = `${first + index + 2}`;
      one.classList.toggle("odd", (first + index) % 2 === 1);
      COLUMNS.forEach((column, at) => {
        const [cell, text] = [one.children[at], column.text(row)];
        if (cell.title === text) return;
        cell.title = text;
        (cell.firstElementChild ?? cell).textContent = text;
        if (at === 0) cell.firstElementChild.ariaLabel = `${text}, object ${row.id}`;
      });
      if (this.body.children[index] !== one) this.body.insertBefore(one, this.body.children[index] ?? null);
    });
  }

  /** Makes the elements of a row. The link in its first cell covers the row. */
  make(id) {
    const cells = COLUMNS.map((column, index) => element("span", { role: "cell", className: column.number ? "number" : "" },
      index > 0 ? null : element("a", { href: `#${id}` })));
    const made = element("div", { className: "row", role: "row" }, ...cells);
    made.dataset.id = id;
    return made;
  }

  /** Counts the calls of some of the objects in view, in turn. */
  async countCalls() {
    if (!this.counting.checked || this.isCounting || this.site.hasEnded) return;
    if (document.hidden || this.scroll.clientHeight === 0) return;
    const { rows } = this.inView();
    if (rows.length === 0) return;
    const ids = rows.slice(this.turn % rows.length).slice(0, COUNTED_MAX).map(row => row.id);
    this.turn = this.turn % rows.length + ids.length;
    this.isCounting = true;
    try {
      const { refused } = await this.site.ask("count", { ids });
      if (refused.length > 0) this.site.tell(`no count of object ${refused[0].id}: ${refused[0].why}`, true);
    } catch (error) {
      this.counting.checked = false;
      this.site.tell(error.message, true);
    }
    this.isCounting = false;
  }
}
