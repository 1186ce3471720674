// Texts and elements. Names of the program are shown as text, never as markup.

/** Makes an element with properties and children. */
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.filter(child => child !== null));
  return made;
}

/** Escapes control characters, and characters that change the direction of writing. */
export function shown(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g,
    letter => `\\u{${letter.codePointAt(0).toString(16)}}`);
}

/** Formats a count with about three digits, or a dash if there is none. */
export function count(amount) {
  if (amount === null || amount === undefined) return "-";
  for (const [step, unit] of [[1e9, "G"], [1e6, "M"], [1e4, "k"]]) {
    if (amount >= step) return `${(amount / (unit === "k" ? 1e3 : step)).toFixed(1)}${unit}`;
  }
  return Number.isInteger(amount) || amount >= 100 ? amount.toFixed(0) : amount.toFixed(1);
}

/** Formats a number of bytes. */
export function bytes(amount) {
  if (amount < 10240) return `${amount} B`;
  for (const [step, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"]]) {
    if (amount >= step) return `${(amount / step).toFixed(1)} ${unit}`;
  }
  return `${(amount / 1024).toFixed(1)} KiB`;
}

/** Formats a span in milliseconds. */
export function span(ms) {
  if (ms < 10_000) return `${(ms / 1e3).toFixed(1)} s`;
  if (ms < 600_000) return `${Math.floor(ms / 1e3)} s`;
  if (ms < 36_000_000) return `${Math.floor(ms / 60_000)} min`;
  return `${Math.floor(ms / 3_600_000)} h`;
}

/** Makes an element for the time since a moment in milliseconds since 1970. `showAges` writes its text. */
export function age(at) {
  const made = element("time", {});
  made.dataset.at = at;
  return made;
}

/** Writes all times since a moment below an element, by the clock of the machine of the program. */
export function showAges(below, now) {
  below.querySelectorAll("time").forEach(made => {
    const text = `${span(Math.max(0, now - Number(made.dataset.at)))} ago`;
    if (made.textContent !== text) made.textContent = text;
  });
}

/** Makes an element of a drawing. */
export function shape(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
  if (text !== undefined) made.textContent = text;
  return made;
}
