// Curves of an object's rates over the last minutes, from the rows that the page got.

import { count, shape, span } from "./text.js";
import { write } from "./part.js";

const WINDOW_MS = 300_000;
const SAMPLES_MAX = 600;
const WIDTH = 260;
const HEIGHT = 44;

const RATES = [["contended/s", "contended_per_s"], ["misses/s", "misses_per_s"], ["calls/s", "calls_per_s"]];

export class Curves {
  constructor() {
    this.node = document.createElement("div");
    this.node.className = "curves";
    this.samples = [];
    this.curves = RATES.map(([title, key]) => {
      const figure = document.createElement("figure");
      const caption = document.createElement("figcaption");
      const line = shape("polyline", { class: "curve" });
      const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, width: WIDTH, height: HEIGHT, "aria-hidden": "true" });
      svg.append(line);
      figure.append(caption, svg);
      this.node.append(figure);
      return { title, key, figure, caption, line };
    });
    this.draw();
  }

  /** Adds the rates of a row at this time, in milliseconds. */
  add(row, now) {
    this.samples.push([now, ...RATES.map(([, key]) => row[key])]);
    const first = this.samples.findIndex(([at]) => at >= now - WINDOW_MS);
    this.samples = this.samples.slice(Math.max(first, this.samples.length - SAMPLES_MAX));
    this.draw();
  }

  draw() {
    const [first, last] = [this.samples[0]?.[0] ?? 0, this.samples.at(-1)?.[0] ?? 0];
    // A curve of one sample has no width.
    const time = Math.max(last - first, 1);
    this.curves.forEach(({ title, figure, caption, line }, index) => {
      const known = this.samples.filter(sample => sample[index + 1] !== null);
      figure.hidden = known.length === 0;
      const most = Math.max(...known.map(sample => sample[index + 1]), 0);
      // A rate that is not known is drawn as none.
      const points = this.samples.map(([at, ...rates]) => {
        const x = WIDTH * (at - first) / time;
        const y = HEIGHT - 2 - (HEIGHT - 4) * (rates[index] ?? 0) / (most || 1);
        return `${x.toFixed(1)},${y.toFixed(1)}`;
      });
      line.setAttribute("points", points.join(" "));
      const now = this.samples.at(-1)?.[index + 1] ?? null;
      write(caption, `${title}: ${count(now)} now, at most ${count(most)} in ${span(Math.round(time / 1000) * 1000)}`);
    });
  }
}
