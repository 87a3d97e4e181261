// The view of the models: what is loaded and how good it is.
import { count, element, numbersTable, percent, plural } from "./dom.js";

const find = (id) => document.getElementById(id);
const MEASURES = [
  ["P@1", "all", "P@1"],
  ["P@5", "all", "P@5"],
  ["PSP@5", "all", "PSP@5"],
  ["R@10", "1-9", "R@10, rare"],
];
const STATES = { "not-loaded": "not loaded" };

/** Show what GET /v1/models says. */
export function showModels({ models, problem }) {
  const cards = models.toReversed().map(card);
  if (problem) cards.unshift(element("p", { class: "problem" }, problem));
  find("versions").replaceChildren(...cards);
}

function card(model) {
  const facts = [
    model.published_at && ["published", new Date(model.published_at).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" })],
    model.label_count !== null && ["labels", count(model.label_count)],
    model.scorers.length && ["methods", model.scorers.map((name) => name + remark(name, model)).join(", ")],
    model.digest && ["digest", element("code", { title: model.digest }, model.digest.slice(0, 16))],
  ].filter(Boolean);
  return element(
    "article",
    { class: "card" },
    element("h3", {}, `Version ${model.version} `, ...badges(model)),
    model.problem ? element("p", { class: "problem" }, model.problem) : null,
    model.load_problem ? element("p", { class: "problem" }, model.load_problem) : null,
    element("dl", { class: "facts" }, ...facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))),
    measures(model.metrics?.dev, model.held_out_documents),
  );
}

function remark(name, model) {
  if (name === model.default_scorer) return " (default)";
  return model.waiting_scorers.includes(name) ? " (loaded when first used)" : "";
}

function badges(model) {
  const isCanary = !model.default && model.traffic_share > 0;
  return [
    [STATES[model.state] ?? model.state, `state-${model.state}`],
    model.default && ["default", ""],
    model.current && ["current", ""],
    isCanary && ["canary", ""],
    model.traffic_share > 0 && model.traffic_share < 1 && [`${percent(model.traffic_share)} of the traffic`, ""],
  ]
    .filter(Boolean)
    .flatMap(([words, kind]) => [element("span", { class: `badge ${kind}` }, words), " "]);
}

/** Return the measures on the dev split, or on what stood for it, as a table; null where there are none. */
function measures(dev, heldOut) {
  const scorers = Object.keys(dev ?? {}).filter((name) => dev[name]?.all);
  if (!scorers.length) return null;
  const where = heldOut ? plural(heldOut, "held-out training document") : "the dev split";
  const cell = (value) => (typeof value === "number" ? (100 * value).toFixed(1) : "–");
  return numbersTable(
    ["method", ...MEASURES.map(([, , head]) => head)],
    scorers.map((name) => [name, "", ...MEASURES.map(([measure, bucket]) => cell(dev[name][bucket]?.[measure]))]),
    `On ${where}, in percent; rare: labels with 1 to 9 training documents`,
  );
}

export function servingWords(models) {
  const serving = models.find((model) => model.default);
  if (!serving) return "No model is ready yet.";
  const others = models.filter((model) => model.loaded && !model.default).length;
  const labels = plural(serving.label_count, "label");
  return `Version ${serving.version} answers, with ${labels}${others ? `; ${plural(others, "other version")} loaded` : ""}.`;
}
