// The list of objects. Only the rows in view are elements, so that ten thousand objects cost no more than fifty.

import { bytes, count, element, shown } from "./text.js";
import { arrange } from "./part.js";

const ROW = 28;
const COUNTED_MAX = 8;
const COUNT_EVERY_MS = 500;

const byNumber = (one, other) => one.slot - other.slot || one.generation - other.generation;

/** States that need attention, and how other processes take part. */
function marks(row) {
  const all = row.state === "live" ? [] : [row.state];
  if (row.frozen) all.push("frozen");
  if (row.dry_run) all.push("dry run");
  if (row.exported_as?.length > 0) all.push(`exported, callers: ${row.callers}`);
  if (row.imported_as) all.push("imported");
  return all.join(", ");
}

/**
 * The columns: title, explanation, text of a row, and its sort key. Numbers are sorted in descending order, texts in
 * ascending order. Ids are their own key.
 */
const COLUMNS = [
  { title: "name", about: "name that the program gave the object", text: row => shown(row.name ?? "-"),
    key: row => row.name ?? "\uffff" },
  { title: "id", about: "slot and generation of the object", text: row => row.id, key: null },
  { title: "class", about: "family of an adaptive object, or interface and class", text: row => shown(row.className),
    key: row => row.className },
  { title: "calls/s", about: "calls per second at the last count; each count takes 20 ms and slows the calls",
    text: row => count(row.calls_per_s), key: row => row.calls_per_s ?? -1, number: true },
  { title: "contended/s", about: "contended calls per second, as the sensor of an adaptive object counts them",
    text: row => count(row.contended_per_s), key: row => row.contended_per_s ?? -1, number: true },
  { title: "misses/s", about: "calls per second that found no entry in their processor's translation table",
    text: row => count(row.misses_per_s), key: row => row.misses_per_s ?? -1, number: true },
  { title: "reps", about: "representatives: parts of the object that serve one cluster of processors each",
    text: row => `${row.reps}`, key: row => row.reps, number: true },
  { title: "memory", about: "bytes of the root and all representatives, without what they allocate, such as the entries of a map", text: row => bytes(row.bytes),
    key: row => row.bytes, number: true },
  { title: "swaps", about: "changes of the form until now", text: row => `${row.swaps}`, key: row => row.swaps, number: true },
  { title: "form", about: "present implementation of an adaptive object", text: row => shown(row.form ?? "-"),
    key: row => row.form ?? "\uffff" },
  { title: "state", about: "frozen, dry run, a change in progress, exported to other processes, or imported from one", text: row => shown(row.marks),
    key: row => row.marks === "" ? "\uffff" : row.marks },
  { title: "last decision", about: "latest decision of the policy, or the reason why the object stays as it is",
    text: row => shown(row.decision), key: row => row.decision === "" ? "\uffff" : row.decision },
];

export class List {
  constructor(site) {
    this.site = site;
    this.rows = new Map();
    this.sorted = [];
    this.chosen = [];
    this.drawn = new Map();
    this.classCounts = new Map();
    this.turn = 0;
    const find = id => document.getElementById(id);
    Object.assign(this, { search: find("search"), classes: find("class"), counting: find("counting"),
      total: find("total"), scroll: find("scroll"), body: find("rows"), heads: find("heads") });
    this.readAddress();
    find("tools").onsubmit = event => event.preventDefault();
    for (const control of [this.search, this.classes]) {
      control.oninput = () => {
        this.scroll.scrollTop = 0;
        this.writeAddress();
        this.choose();
      };
    }
    this.scroll.onscroll = () => this.draw();
    addEventListener("resize", () => this.draw());
    setInterval(() => this.countCalls(), COUNT_EVERY_MS);
    this.drawHeads();
  }

  /** Reads search, class and order from the address, so that a reload and a copied address keep them. */
  readAddress() {
    const given = new URLSearchParams(location.search);
    this.search.value = given.get("find") ?? "";
    this.wantedClass = given.get("class") ?? "";
    this.sort = COLUMNS.find(column => column.title === given.get("sort")) ?? COLUMNS[4];
    this.isBackwards = given.has("backwards");
  }

  writeAddress() {
    this.wantedClass = this.classes.value;
    const given = new URLSearchParams();
    if (this.search.value !== "") given.set("find", this.search.value);
    if (this.wantedClass !== "") given.set("class", this.wantedClass);
    if (this.sort !== COLUMNS[4]) given.set("sort", this.sort.title);
    if (this.isBackwards) given.set("backwards", "");
    history.replaceState(null, "", `${location.pathname}${given.size > 0 ? `?${given}` : ""}${location.hash}`);
  }

  show() {
    this.draw();
  }

  leave() {}

  /** Takes over changed rows. */
  update({ full, rows, gone }) {
    if (!full && rows.length === 0 && gone.length === 0) return;
    const absent = full ? new Set(this.rows.keys()) : new Set(gone);
    for (const row of rows) {
      absent.delete(row.id);
      this.take(row);
    }
    for (const id of absent) {
      const row = this.rows.get(id);
      if (row === undefined) continue;
      this.rows.delete(id);
      this.countClass(row.className, -1);
      row.isGone = true;
    }
    if (absent.size > 0) this.sorted = this.sorted.filter(row => !row.isGone);
    this.listClasses();
    if (this.isDue) return;
    this.isDue = true;
    requestAnimationFrame(() => {
      this.isDue = false;
      this.choose();
    });
  }

  /** Takes over one row. The texts to search and to sort by are made here, once. */
  take(row) {
    const old = this.rows.get(row.id);
    const before = old?.className;
    const kept = Object.assign(old ?? {}, row);
    kept.className = row.family ?? `${row.interface} (${row.class})`;
    kept.decision = row.last_decision ?? (row.stays ? `stays ${row.form}: ${row.stays}` : "");
    kept.marks = marks(row);
    kept.words = [row.name ?? "", row.id, kept.className, row.form ?? "", kept.marks, kept.decision].join("\n").toLowerCase();
    if (old === undefined) {
      [kept.slot, kept.generation] = row.id.split(".").map(Number);
      this.rows.set(row.id, kept);
      this.sorted.push(kept);
    }
    if (before !== kept.className) {
      if (before !== undefined) this.countClass(before, -1);
      this.countClass(kept.className, 1);
    }
  }

  countClass(name, change) {
    const number = (this.classCounts.get(name) ?? 0) + change;
    if (number > 0) this.classCounts.set(name, number);
    else this.classCounts.delete(name);
    this.hasNewCounts = true;
  }

  listClasses() {
    if (!this.hasNewCounts) return;
    this.hasNewCounts = false;
    const sorted = [...this.classCounts].sort(([one], [other]) => one < other ? -1 : 1);
    const wanted = [["", "all classes"], ...sorted.map(([name, number]) => [name, `${shown(name)}: ${number}`])];
    this.classes.replaceChildren(...wanted.map(([name, title]) => element("option", { value: name }, title)));
    this.classes.value = this.classCounts.has(this.wantedClass) ? this.wantedClass : "";
  }

  /** Filters and sorts. Rows that are in order already cost one comparison each. */
  choose() {
    const words = this.search.value.toLowerCase();
    const { value } = this.classes;
    const { key, number } = this.sort;
    const sign = this.isBackwards ? -1 : 1;
    const first = number ? sign : -sign;
    this.sorted.sort(key === null ? (one, other) => sign * byNumber(one, other) : (one, other) => {
      const [left, right] = [key(one), key(other)];
      if (left === right) return byNumber(one, other);
      return left < right ? first : -first;
    });
    this.chosen = this.sorted.filter(row => (words === "" || row.words.includes(words)) && (value === "" || row.className === value));
    this.scroll.ariaRowCount = `${this.chosen.length + 1}`;
    const total = this.chosen.length === this.rows.size ? `${this.rows.size} objects`
      : `${this.chosen.length} of ${this.rows.size} objects`;
    if (this.total.textContent !== total) this.total.textContent = total;
    this.draw();
  }

  drawHeads() {
    this.heads.replaceChildren(...COLUMNS.map((column, index) => {
      const isSorted = column === this.sort;
      const isDescending = (column.number === true) !== this.isBackwards;
      const mark = !isSorted ? "" : isDescending ? "\u25be " : "\u25b4 ";
      const button = element("button", { type: "button", title: column.about }, mark + column.title);
      button.onclick = () => {
        this.isBackwards = column === this.sort && !this.isBackwards;
        this.sort = column;
        this.writeAddress();
        this.drawHeads();
        this.heads.children[index].firstChild.focus();
        this.choose();
      };
      const ariaSort = !isSorted ? "none" : isDescending ? "descending" : "ascending";
      return element("span", { role: "columnheader", className: column.number ? "number" : "", ariaSort }, button);
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
    rows.forEach((row, index) => {
      const one = this.drawn.get(row.id);
      one.style.top = `${(first + index) * ROW}px`;
      one.ariaRowIndex = `${first + index + 2}`;
      one.firstChild.firstChild.ariaLabel = row.name === null ? `object ${row.id}` : null;
      one.classList.toggle("odd", (first + index) % 2 === 1);
      COLUMNS.forEach((column, at) => {
        const [cell, text] = [one.children[at], column.text(row)];
        if (cell.title === text) return;
        cell.title = text;
        (cell.firstElementChild ?? cell).textContent = text;
        cell.classList.toggle("nil", text === "-" || text === "0");
      });
    });
    arrange(this.body, [...this.drawn.values()]);
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
    const { site } = this;
    if (!this.counting.checked || this.isCounting || site.hasEnded || site.isPaused) return;
    if (document.hidden || this.scroll.clientHeight === 0) return;
    const { rows } = this.inView();
    if (rows.length === 0) return;
    const ids = rows.slice(this.turn % rows.length).slice(0, COUNTED_MAX).map(row => row.id);
    this.turn = this.turn % rows.length + ids.length;
    this.isCounting = true;
    try {
      const { refused } = await site.ask("count", { ids });
      if (refused.length > 0) site.tell(`no count of object ${refused[0].id}: ${refused[0].why}`, true);
    } catch (error) {
      this.counting.checked = false;
      site.tell(error.message, true);
    }
    this.isCounting = false;
  }
}
