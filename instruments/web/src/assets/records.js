// The view of the records of locks, gates, queues, swaps and the engine. The program records while a page shows it.

import { count, element, shown, span } from "./text.js";
import { Table } from "./part.js";
import { View } from "./log.js";

/** Formats the kind of a sum with its codes. */
const kind = sum => shown([sum.kind, ...sum.values.filter(value => value.code !== undefined)
  .map(value => `${value.name}=${value.code}`)].join(" "));

const object = sum => sum.object === null ? "-" : shown(sum.name === null ? sum.object : `${sum.object} "${sum.name}"`);

/** Formats the quantities of a sum. */
const quantities = (sum, of) => shown(sum.values.filter(value => value.code === undefined)
  .map(value => `${value.name} ${count(of(value))}`).join(", "));

const table = () => new Table(["kind", "object", "records/s", "mean", "largest"],
  ({ sum, span_us }) => [kind(sum), object(sum), count(sum.count * 1e6 / Math.max(span_us, 1)),
    quantities(sum, value => value.sum / Math.max(sum.count, 1)), quantities(sum, value => value.max)]);

/** The sums of the latest records. */
export class RecordsView extends View {
  constructor(site) {
    super(site, "records");
    this.table = table();
    this.note = element("p", { className: "weak", role: "status" });
    this.section.append(this.failure, this.note, this.table.node);
  }

  path() {
    return "records";
  }

  draw({ records, why }) {
    const begins = records !== null && records.begins;
    this.note.textContent = why !== null ? shown(why)
      : begins ? "The program begins to record."
        : `${records.sums.length === 0 ? "No record" : "Records"} in the last ${span(records.span_us / 1e3)}; `
          + `${count(records.dropped)} dropped, ${count(records.missed)} missed.`;
    const { sums, span_us } = records ?? { sums: [], span_us: 0 };
    this.table.update(begins ? [] : sums.map(sum => ({ sum, span_us })));
  }
}
