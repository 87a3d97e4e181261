// What a person says of the labels of an answer: accepted, rejected, added; sent as one entry.
import { giveFeedback, labels as fetchLabels } from "./api.js";
import { debounced, element, plural } from "./dom.js";
import { hideProblem, showProblem } from "./problems.js";

const SEARCH_PAUSE_MS = 200;
const NUM_FOUND = 8;

export class Review {
  /** `results` has the labels to judge; `onSent` is called when an entry is kept. */
  constructor(results, onSent) {
    this.results = results;
    this.onSent = onSent;
    this.text = null; // that the verdicts are about
    this.version = null;
    this.added = new Map(); // names by label id
    this.query = element("input", { type: "search", autocomplete: "off", maxLength: 1000 });
    this.found = element("ul", { class: "chips found" });
    this.chosen = element("ul", { class: "chips chosen" });
    this.send = element("button", { type: "button", class: "send" }, "Send feedback");
    this.said = element("span", { class: "muted" });
    this.said.setAttribute("role", "status");
    this.problem = element("div", { class: "problem", hidden: true });
    this.problem.setAttribute("role", "alert");
    this.kept = element("p", { class: "muted" });
    this.root = element(
      "div",
      { class: "review", hidden: true },
      element("p", { class: "muted" }, "On a label, ", element("kbd", {}, "a"), " accepts and ", element("kbd", {}, "r"), " rejects it; ", element("kbd", {}, "s"), " sends."),
      element("label", { class: "field" }, "Add a label that is missing", this.query),
      this.found,
      this.chosen,
      element("div", { class: "ask-row" }, this.send, this.said),
      this.kept,
      this.problem,
    );
    this.renew();
    this.listen();
  }

  listen() {
    this.results.onVerdict = () => this.change();
    this.results.onSend = () => this.send.click();
    this.query.addEventListener("input", debounced(SEARCH_PAUSE_MS, () => this.search()));
    this.query.addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      this.found.querySelector("button")?.click();
    });
    this.send.addEventListener("click", () => this.give());
  }

  /** Take what GET /v1/models told of feedback. */
  use({ enabled, keeps_texts: keepsTexts }) {
    this.isOn = enabled;
    this.results.offerVerdicts(enabled);
    this.root.hidden = !enabled || this.text === null;
    this.kept.textContent = keepsTexts ? "The service keeps the text." : "The service does not keep the text, only its SHA-256.";
  }

  /** Begin with an answer; what was said of the same text stays. */
  start(text, version) {
    if (text !== this.text) this.forget();
    this.text = text;
    this.version = version;
    this.root.hidden = !this.isOn;
  }

  stop() {
    this.forget();
    this.text = null;
    this.root.hidden = true;
  }

  forget() {
    this.results.forgetVerdicts();
    this.added.clear();
    this.query.value = "";
    this.found.replaceChildren();
    hideProblem(this.problem);
    this.change();
  }

  /** Show what is said now; another content is another entry. */
  change() {
    this.renew();
    this.chosen.replaceChildren(...[...this.added].map(([id, name]) => this.chip(name, `Remove ${name}`, "×", () => this.added.delete(id))));
    const number = this.results.verdicts.size + this.added.size;
    this.send.disabled = !number;
    this.said.textContent = number ? `${plural(number, "label")} judged` : "";
  }

  renew() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    this.id = `page-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  }

  chip(name, title, sign, action) {
    const button = element("button", { type: "button", class: "chip", title }, `${name} `, element("span", { aria: { hidden: "true" } }, sign));
    button.setAttribute("aria-label", title);
    button.addEventListener("click", () => {
      action();
      this.change();
    });
    return element("li", {}, button);
  }

  async search() {
    this.searching?.abort();
    this.searching = new AbortController();
    if (!this.query.value.trim()) {
      this.found.replaceChildren();
      return;
    }
    try {
      const { labels } = await fetchLabels(this.query.value, 0, NUM_FOUND, this.searching.signal);
      hideProblem(this.problem);
      this.found.replaceChildren(...labels.map((label) => this.chip(label.name, `Add ${label.name}`, "+", () => this.add(label))));
      if (!labels.length) this.found.replaceChildren(element("li", { class: "muted" }, "No such label."));
    } catch (error) {
      if (error.name !== "AbortError") showProblem(this.problem, error, () => this.search());
    }
  }

  /** Add a label; one that is in the answer is accepted. */
  add({ id, name }) {
    if (this.results.rows.has(id)) this.results.judge(id, "accepted");
    else this.added.set(id, name);
    this.query.value = "";
    this.found.replaceChildren();
    this.query.focus();
  }

  /** Send the entry; again under the same id where the answer was lost. */
  async give() {
    const judged = (verdict) => [...this.results.verdicts].filter(([, each]) => each === verdict).map(([id]) => id);
    const added = [...this.added.keys()].filter((id) => !this.results.verdicts.has(id));
    const entry = { id: this.id, text: this.text, accepted: judged("accepted"), rejected: judged("rejected"), added, version: this.version };
    this.send.disabled = true;
    try {
      await giveFeedback(entry);
      this.forget();
      this.said.textContent = "Kept. The next text?";
      this.onSent();
    } catch (error) {
      this.send.disabled = false;
      showProblem(this.problem, error, () => this.give());
    }
  }
}
