// Elements and numbers. Whatever comes from texts and labels becomes a text node, never HTML.

/** Return a new element; `options` are properties, but for `data`, `aria` and `class`. */
export function element(name, options = {}, ...children) {
  const made = document.createElement(name);
  const { class: className, aria = {}, data = {}, ...properties } = options;
  if (className) made.className = className;
  for (const [key, value] of Object.entries(aria)) made.setAttribute(`aria-${key}`, value);
  Object.assign(made.dataset, data);
  Object.assign(made, properties);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Return a table of numbers, wide ones scrolled: a head for each column, rows [name, class, ...cells]. */
export function numbersTable(heads, rows, caption = "") {
  const body = rows.map(([name, kind, ...cells]) =>
    element("tr", { class: kind }, element("th", { scope: "row" }, name), ...cells.map((cell) => element("td", { class: "number" }, cell))),
  );
  const head = element("thead", {}, element("tr", {}, ...heads.map((words) => element("th", { scope: "col" }, words))));
  const made = element("table", { class: "scores" }, caption ? element("caption", { class: "muted" }, caption) : null, head, element("tbody", {}, ...body));
  return element("div", { class: "wide" }, made);
}

/** Fill a choice with options; keeps what was chosen where it is still there. */
export function fillSelect(select, choices, chosen = select.value) {
  const values = choices.map(([value]) => value);
  select.replaceChildren(
    ...choices.map(([value, words]) => element("option", { value, textContent: words })),
  );
  select.value = values.includes(chosen) ? chosen : values[0];
  select.disabled = choices.length < 2;
}

/** Return a function that calls another once it has not been called for a while. */
export function debounced(milliseconds, action) {
  let timer;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...values), milliseconds);
  };
}

/** Copy the text of an element, or where that is not allowed, as over plain HTTP, select it. */
export async function copyText(holder) {
  try {
    await navigator.clipboard.writeText(holder.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(holder);
    return false;
  }
}

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });

export const count = (value) => whole.format(value);
export const score = (value) => short.format(value).replace("-", "−");
export const signed = (value) => (value > 0 ? "+" : "") + score(value);

export function percent(probability) {
  const value = probability * 100;
  if (value > 0 && value < 0.1) return "< 0.1 %";
  return `${value.toFixed(value < 9.95 ? 1 : 0)} %`;
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** Return how often a label was seen in training, as a class of style. */
export const rarity = (trainingCount) =>
  trainingCount >= 10 ? "common" : trainingCount > 0 ? "rare" : "never";
