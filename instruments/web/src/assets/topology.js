// Drawing of the topology, with the representatives of one object: nested boxes for nodes, caches and cores.

import { element, shape } from "./text.js";

const VP = 26;
const PAD = 6;
const LABEL = 13;
const ROOT = 46;
const WIDTH_MIN = 300;

/** Returns the number of columns for boxes: one that leaves no row short, if it is near the best. */
function columns(number) {
  const best = Math.ceil(Math.sqrt(number * 2));
  for (let near = best; near <= best * 2 && near <= number; near += 1) if (number % near === 0) return near;
  return best;
}

/** Arranges the clusters of a level below their parent. Returns boxes with sizes and places inside the parent. */
function arrange(levels, depth, vps) {
  if (depth === 0) return { width: VP, height: VP, vp: vps[0], children: [] };
  const members = new Set(vps);
  const below = levels[depth - 1].clusters.filter(cluster => cluster.length > 0 && members.has(cluster[0]));
  // A level with one cluster inside another adds nothing to see.
  if (below.length === 1 && depth > 1) return arrange(levels, depth - 1, vps);
  const children = below.map(cluster => arrange(levels, depth - 1, cluster));
  const inRow = columns(children.length);
  let [x, y, width, rowHeight] = [PAD, PAD + LABEL, 0, 0];
  children.forEach((child, index) => {
    if (index > 0 && index % inRow === 0) {
      [x, y, rowHeight] = [PAD, y + rowHeight + PAD, 0];
    }
    Object.assign(child, { x, y });
    x += child.width + PAD;
    rowHeight = Math.max(rowHeight, child.height);
    width = Math.max(width, x);
  });
  return { width: Math.max(width, 60), height: y + rowHeight + PAD, label: levels[depth].name, children };
}

/** Returns the VPs in a list of ranges such as `0-3,8`. */
function ranges(text) {
  const vps = new Set();
  for (const part of text.split(",").filter(part => part !== "")) {
    const [first, last = first] = part.split("-").map(Number);
    for (let vp = first; vp <= last; vp += 1) vps.add(vp);
  }
  return vps;
}

/** Draws the topology below a free space. `classOf` and `titleOf` give the class and the title of the square of a VP. */
function draw(machine, space, classOf, titleOf) {
  const { levels } = machine;
  const all = levels.at(-1).clusters.flat();
  const plan = arrange(levels, levels.length - 1, all);
  const online = new Set(machine.online);
  const width = Math.max(plan.width + 2, WIDTH_MIN);
  const height = plan.height + space + 2;
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  const [edges, boxes, places] = [shape("g", {}), shape("g", {}), new Map()];

  function box(one, left, top) {
    if (one.vp === undefined) {
      boxes.append(shape("rect", { class: "box", x: left, y: top, width: one.width, height: one.height, rx: 4 }));
      boxes.append(shape("text", { x: left + PAD, y: top + LABEL - 1 }, one.label));
      one.children.forEach(child => box(child, left + child.x, top + child.y));
      return;
    }
    const classes = ["vp", classOf(one.vp), online.has(one.vp) ? "" : "offline"];
    const square = shape("rect", { class: classes.join(" "), x: left, y: top, width: VP, height: VP, rx: 3 });
    square.append(shape("title", {}, `VP ${one.vp}: ${titleOf(one.vp)}${online.has(one.vp) ? "" : "; offline"}`));
    boxes.append(square, shape("text", { x: left + VP / 2, y: top + VP / 2 + 4, "text-anchor": "middle" }, one.vp));
    places.set(one.vp, [left + VP / 2, top + VP / 2]);
  }

  box(plan, 1, space + 1);
  svg.append(edges, boxes);
  return { svg, edges, places, middle: plan.width / 2 };
}

/** Returns the words below a drawing. */
function words({ is_virtual, levels, online }, more) {
  const all = levels.at(-1).clusters.flat().length;
  const kind = is_virtual ? "virtual topology, not that of the hardware" : "topology of the hardware";
  return element("p", { className: "weak" }, `${all} VPs (virtual processors), ${online.length} online; ${kind}${more}`);
}

const unknown = () => [element("p", { className: "weak" }, "The program did not send its topology.")];

/** Draws the topology alone. */
export function drawMachine(machine) {
  if (machine.levels.length === 0) return unknown();
  const { svg } = draw(machine, 0, () => "", () => "online");
  svg.prepend(shape("title", {}, "topology of the program"));
  return [svg, words(machine, "")];
}

/** Draws the topology and the representatives of an object. */
export function drawReps(machine, { reps, kind, rep_list, translations }) {
  if (machine.levels.length === 0) return unknown();
  const made = new Map();
  for (const rep of rep_list) {
    if (rep.vp !== null) made.set(rep.vp, [...(made.get(rep.vp) ?? []), rep]);
  }
  const called = ranges(translations);
  const held = ({ holds }) => holds > 0 ? `, held by ${holds} calls` : "";
  const title = vp => (made.get(vp) ?? []).map(rep => `representative of cluster ${rep.cluster}${held(rep)}`)
    .concat(called.has(vp) ? "has called the object" : "has not called the object").join("; ");
  const { svg, edges, places, middle } = draw(machine, ROOT,
    vp => `${made.has(vp) ? "rep" : ""} ${called.has(vp) ? "called" : ""}`, title);
  const root = { x: middle, y: 16 };
  for (const vp of made.keys()) {
    const [x, y] = places.get(vp) ?? [];
    if (x !== undefined) edges.append(shape("line", { class: "edge", x1: root.x, y1: root.y, x2: x, y2: y }));
  }
  const circle = shape("circle", { class: "rep", cx: root.x, cy: root.y, r: 8 });
  circle.append(shape("title", {}, "root of the object"));
  svg.prepend(shape("title", {}, `${reps} representatives, on VPs ${[...made.keys()].join(", ")}`));
  svg.append(circle, shape("text", { x: root.x + 13, y: root.y + 4 },
    kind === "clustered" ? "root" : "root and only representative"));
  return [svg, words(machine, "; filled: has a representative; blue border: has called the object")];
}
