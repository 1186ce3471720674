// Drawing of the topology with the representatives of one object: nested boxes for nodes, caches and cores.

const NAMESPACE = "http://www.w3.org/2000/svg";
const VP = 26;
const PAD = 6;
const LABEL = 13;
const ROOT = 46;
const WIDTH_MIN = 300;

function shape(tag, attributes, text) {
  const made = document.createElementNS(NAMESPACE, tag);
  Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Arranges the clusters of a level below their parent. Returns boxes with sizes and places inside the parent. */
function arrange(levels, depth, vps) {
  if (depth === 0) return { width: VP, height: VP, vp: vps[0], children: [] };
  const members = new Set(vps);
  const below = levels[depth - 1].clusters.filter(cluster => cluster.length > 0 && members.has(cluster[0]));
  // A level with one cluster inside another adds nothing to see.
  if (below.length === 1 && depth > 1) return arrange(levels, depth - 1, vps);
  const children = below.map(cluster => arrange(levels, depth - 1, cluster));
  const columns = Math.ceil(Math.sqrt(children.length * 2));
  let [x, y, width, rowHeight] = [PAD, PAD + LABEL, 0, 0];
  children.forEach((child, index) => {
    if (index > 0 && index % columns === 0) {
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

/** Draws the topology and the representatives. Returns `null` if the program did not tell its topology. */
export function drawTopology(machine, detail) {
  const { levels } = machine;
  if (levels.length === 0) return null;
  const all = levels.at(-1).clusters.flat();
  const plan = arrange(levels, levels.length - 1, all);
  const reps = new Map();
  for (const rep of detail.rep_list) {
    if (rep.vp !== null) reps.set(rep.vp, [...(reps.get(rep.vp) ?? []), rep]);
  }
  const online = new Set(machine.online);
  const missed = ranges(detail.translations);
  const width = Math.max(plan.width + 2, WIDTH_MIN);
  const height = plan.height + ROOT + 2;
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img" });
  svg.append(shape("title", {}, `${detail.reps} representatives on ${all.length} VPs`));
  const [edges, boxes] = [shape("g", {}), shape("g", {})];
  const root = { x: plan.width / 2, y: 16 };

  function draw(box, left, top) {
    if (box.vp === undefined) {
      boxes.append(shape("rect", { class: "box", x: left, y: top, width: box.width, height: box.height, rx: 4 }));
      boxes.append(shape("text", { x: left + PAD, y: top + LABEL - 1 }, box.label));
      box.children.forEach(child => draw(child, left + child.x, top + child.y));
      return;
    }
    const here = reps.get(box.vp);
    const classes = ["vp", here ? "rep" : "", online.has(box.vp) ? "" : "offline", missed.has(box.vp) ? "missed" : ""];
    const square = shape("rect", { class: classes.join(" "), x: left, y: top, width: VP, height: VP, rx: 3 });
    const text = here ? here.map(rep => `representative of cluster ${rep.cluster}${rep.holds ? `, held by ${rep.holds} calls` : ""}`)
      : [missed.has(box.vp) ? "has called the object" : "has not called the object"];
    square.append(shape("title", {}, `VP ${box.vp}: ${text.join("; ")}`));
    boxes.append(square, shape("text", { x: left + VP / 2, y: top + VP / 2 + 4, "text-anchor": "middle" }, box.vp));
    if (here) edges.append(shape("line", { class: "edge", x1: root.x, y1: root.y, x2: left + VP / 2, y2: top + VP / 2 }));
  }

  draw(plan, 1, ROOT + 1);
  const circle = shape("circle", { class: "rep", cx: root.x, cy: root.y, r: 8 });
  circle.append(shape("title", {}, "root of the object"));
  const kind = detail.kind === "clustered" ? "root" : "root and only representative";
  svg.append(edges, boxes, circle, shape("text", { x: root.x + 13, y: root.y + 4 }, kind));
  return svg;
}
