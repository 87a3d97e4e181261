// The view of the label catalogue: search it, read one label.
import { label as fetchLabel, labels as fetchLabels } from "./api.js";
import { count, debounced, element, numbersTable, percent, plural, rarity } from "./dom.js";
import { hideProblem, showProblem } from "./problems.js";
import { Tree } from "./tree.js";
import { documents, keywordList, labelLinks, seen } from "./why.js";

const PAGE = 30;
const find = (id) => document.getElementById(id);

export class CatalogueView {
  /** `onUnder` is called with the label below which answers shall be. */
  constructor(onUnder) {
    this.onUnder = onUnder;
    this.tree = new Tree(find("tree"), (id) => (location.hash = `#labels/${encodeURIComponent(id)}`));
    find("tree-open").addEventListener("click", () => this.toggleTree());
    this.query = find("label-query");
    this.list = find("label-list");
    this.sort = find("label-sort");
    this.more = find("label-more");
    this.detail = find("label-detail");
    this.shown = null; // id of the label in the detail
    this.found = 0;
    this.query.addEventListener("input", debounced(200, () => this.search()));
    this.sort.addEventListener("change", () => this.search());
    this.more.addEventListener("click", () => this.search(this.found));
  }

  /** Show the view, with a label where the address names one. */
  open(id) {
    if (!this.list.children.length) this.search();
    if (id && id !== this.shown) this.showLabel(id);
    this.markShown();
  }

  /** Take what GET /v1/models says. */
  useModels({ models }) {
    const model = models.find((each) => each.default);
    find("tree-open").hidden = !model?.has_hierarchy;
    find("label-sort-field").hidden = !model?.has_label_quality;
    if (!model?.has_label_quality) this.sort.value = "match";
    if (this.digest && this.digest !== model?.digest) this.renew();
    this.digest = model?.digest;
  }

  /** Read all again: another model, or another language. */
  renew() {
    const shown = this.shown;
    this.shown = null;
    if (this.list.children.length) this.search();
    if (!find("tree").hidden) this.tree.open();
    if (shown) this.showLabel(shown);
  }

  toggleTree() {
    const opens = find("tree").hidden;
    find("tree").hidden = !opens;
    find("tree-open").setAttribute("aria-expanded", `${opens}`);
    if (opens) this.tree.open();
  }

  async search(offset = 0) {
    this.searching?.abort();
    this.searching = new AbortController();
    try {
      const sort = this.sort.value;
      const found = await fetchLabels({ query: this.query.value, offset, limit: PAGE, sort }, this.searching.signal);
      hideProblem(find("label-problem"));
      const items = found.labels.map((label) => listItem(label, sort));
      if (offset) this.list.append(...items);
      else this.list.replaceChildren(...items);
      this.found = offset + items.length;
      this.more.hidden = this.found >= found.total;
      find("label-total").textContent =
        found.total > this.found ? `${count(this.found)} of ${plural(found.total, "label")}` : plural(found.total, "label");
      if (offset) items[0]?.firstElementChild.focus();
      this.markShown();
    } catch (error) {
      if (error.name !== "AbortError") showProblem(find("label-problem"), error, () => this.search(offset));
    }
  }

  async showLabel(id) {
    this.reading?.abort();
    this.reading = new AbortController();
    this.shown = id;
    try {
      const label = await fetchLabel(id, this.reading.signal);
      const title = element("h2", { tabIndex: -1 }, label.name);
      this.detail.replaceChildren(title, ...detailParts(label), this.underButton(label));
      title.focus({ preventScroll: true });
      if (this.detail.getBoundingClientRect().top > innerHeight * 0.6) this.detail.scrollIntoView({ block: "start" });
    } catch (error) {
      if (error.name === "AbortError") return;
      this.shown = null;
      const box = element("div", { class: "problem", role: "alert" });
      this.detail.replaceChildren(box);
      showProblem(box, error, () => this.showLabel(id));
    }
  }

  /** Return what asks only for a label and those below it; nothing where none is below it. */
  underButton(label) {
    if (!label.narrower.length) return "";
    const button = element("button", { type: "button" }, "Find labels below this one only");
    button.addEventListener("click", () => {
      this.onUnder({ id: label.id, name: label.name });
      location.hash = "#ask";
    });
    return button;
  }

  markShown() {
    for (const item of this.list.children) {
      const link = item.firstElementChild;
      if (link.dataset.id === this.shown) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }
}

function listItem(label, sort) {
  const quality = label.quality?.[sort];
  return element(
    "li",
    {},
    element(
      "a",
      { href: `#labels/${encodeURIComponent(label.id)}`, class: rarity(label.training_count), data: { id: label.id } },
      element("span", { class: "name" }, label.name),
      element("span", { class: "count" }, quality ? `${sort} ${interval(quality)}` : documents(label.training_count)),
    ),
  );
}

const interval = ({ share, lower, upper }) => `${percent(share)} (${Math.round(100 * lower)} to ${Math.round(100 * upper)})`;

function detailParts(label) {
  return [
    element("p", { class: "muted" }, [label.id !== label.name && `id ${label.id}`, label.notation, `version ${label.model.version}`].filter(Boolean).join(" · ")),
    element("p", { class: `seen ${rarity(label.training_count)}` }, seen(label.training_count)),
    label.description ? element("p", {}, label.description) : null,
    ...section("How good it is", label.quality && qualityParts(label.quality)),
    ...section("Broader", label.broader.length ? labelLinks(label.broader) : null),
    ...section("Narrower", label.narrower.length ? labelLinks(label.narrower) : null),
    ...section("Other names", label.alternative_names.join(" · ")),
    ...section("In other languages", Object.entries(label.names).map(([code, name]) => `${code}: ${name}`).join(" · ")),
    ...section("Words that go with it", label.keywords.length ? keywordList(label.keywords) : null),
    ...section("Similar labels", label.nearest.length ? labelLinks(label.nearest) : null),
    ...section("Methods that know it", label.scorers.join(", ")),
  ].filter(Boolean);
}

/** Return precision and recall of a label with 95 % intervals. */
function qualityParts({ carried, predicted, right, precision, recall }) {
  const rows = [
    ["precision: right of predicted", "", precision ? interval(precision) : "–", `${count(right)} of ${count(predicted)}`],
    ["recall: found of carried", "", recall ? interval(recall) : "–", `${count(right)} of ${count(carried)}`],
  ];
  return numbersTable(["", "share (95 %)", "documents"], rows, "From the model's threshold on, in the held-out documents that its probabilities were fitted on");
}

function section(title, content) {
  if (!content) return [];
  return [element("h3", {}, title), typeof content === "string" ? element("p", {}, content) : content];
}
