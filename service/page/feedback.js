// What a person says of the labels of a text: accepted, rejected, added, proposed; sent as one entry.
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
    this.shown = { text: null, version: null }; // the answer above; of another text while `isPending`
    this.isPending = false;
    this.added = new Map(); // names by label id
    this.proposed = new Set(); // names of labels that the model lacks
    this.query = element("input", { type: "search", autocomplete: "off", maxLength: 1000 });
    this.found = element("ul", { class: "chips found" });
    this.chosen = element("ul", { class: "chips chosen" });
    this.send = actionButton("Send feedback", () => this.give(), "send");
    this.keep = actionButton("They hold for this text", () => this.adopt(), "keep");
    this.pending = element(
      "div",
      { class: "pending", hidden: true },
      element("p", {}, "The text has changed since you judged labels."),
      element("div", { class: "ask-row" }, this.keep, actionButton("Send them for the text before", () => this.give(), ""), actionButton("Drop them", () => this.forget(), "drop")),
    );
    this.pending.setAttribute("role", "alert");
    this.said = element("span", { class: "muted" });
    this.said.setAttribute("role", "status");
    this.problem = element("div", { class: "problem", hidden: true });
    this.problem.setAttribute("role", "alert");
    this.kept = element("p", { class: "muted" });
    this.root = element(
      "div",
      { class: "review", hidden: true },
      element("p", { class: "muted keys" }, "On a label, ", element("kbd", {}, "a"), " accepts and ", element("kbd", {}, "r"), " rejects it; ", element("kbd", {}, "s"), " sends."),
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
  }

  /** Take what GET /v1/models told of feedback. */
  use({ enabled, keeps_texts: keepsTexts }) {
    this.isOn = enabled;
    this.kept.textContent = keepsTexts ? "The service keeps the text." : "The service does not keep the text, only its SHA-256.";
    this.draw();
  }

  /** Go on with an answer; null: there is none. What is not sent stays, and belongs to its own text. */
  start(text, version) {
    this.shown = { text, version };
    this.isPending = this.number > 0 && text !== this.text;
    if (!this.isPending) Object.assign(this, this.shown);
    this.draw();
  }

  /** Let what was judged be about the text that is shown now. */
  adopt() {
    Object.assign(this, this.shown);
    this.isPending = false;
    this.change();
  }

  forget() {
    this.results.forgetVerdicts();
    this.added.clear();
    this.proposed.clear();
    this.query.value = "";
    this.found.replaceChildren();
    hideProblem(this.problem);
    this.adopt();
  }

  get number() {
    return this.results.verdicts.size + this.added.size + this.proposed.size;
  }

  /** Another content is another entry. */
  change() {
    this.renew();
    this.draw();
  }

  draw() {
    const unseen = [...this.results.verdicts].filter(([id]) => !this.results.rows.has(id));
    this.chosen.replaceChildren(
      ...unseen.map(([id, { name, verdict }]) => this.removable(`${name} (${verdict})`, () => this.results.verdicts.delete(id))),
      ...[...this.added].map(([id, name]) => this.removable(name, () => this.added.delete(id))),
      ...[...this.proposed].map((name) => this.removable(`${name} (new)`, () => this.proposed.delete(name))),
    );
    this.results.offerVerdicts(this.isOn, this.isPending);
    this.root.hidden = !this.isOn || (this.shown.text === null && !this.number);
    this.query.disabled = this.isPending;
    this.pending.hidden = !this.isPending;
    this.keep.hidden = this.shown.text === null;
    this.send.disabled = !this.number || this.isPending;
    this.said.textContent = this.number ? `${plural(this.number, "label")} judged` : "";
  }

  renew() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    this.id = `page-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
  }

  removable(name, action) {
    return this.chip(name, `Remove ${name}`, "×", action);
  }

  chip(name, title, sign, action) {
    const button = actionButton("", () => {
      action();
      this.change();
    }, "chip");
    button.title = title;
    button.append(`${name} `, element("span", { aria: { hidden: "true" } }, sign));
    button.setAttribute("aria-label", title);
    return element("li", {}, button);
  }

  async search() {
    this.searching?.abort();
    this.searching = new AbortController();
    const wanted = this.query.value.trim();
    if (!wanted) {
      this.found.replaceChildren();
      return;
    }
    try {
      const { labels } = await fetchLabels({ query: wanted, limit: NUM_FOUND }, this.searching.signal);
      hideProblem(this.problem);
      const chips = labels.map((label) => this.chip(label.name, `Add ${label.name}`, "+", () => this.add(label)));
      if (!labels.some(({ name }) => name.toLowerCase() === wanted.toLowerCase())) {
        const title = `Propose ${wanted} as a new label`;
        chips.push(this.chip(`new label “${wanted}”`, title, "+", () => this.take(() => this.proposed.add(wanted))));
      }
      this.found.replaceChildren(...chips);
    } catch (error) {
      if (error.name !== "AbortError") showProblem(this.problem, error, () => this.search());
    }
  }

  /** Add a label; one that is in the answer is accepted. */
  add({ id, name }) {
    this.take(() => (this.results.rows.has(id) ? this.results.judge(id, "accepted") : this.added.set(id, name)));
  }

  take(action) {
    action();
    this.query.value = "";
    this.found.replaceChildren();
    this.query.focus();
  }

  /** Send the entry; again under the same id where the answer was lost. */
  async give() {
    const judged = (wanted) => [...this.results.verdicts].filter(([, { verdict }]) => verdict === wanted).map(([id]) => id);
    const added = [...this.added.keys()].filter((id) => !this.results.verdicts.has(id));
    const proposed = [...this.proposed].map((name) => ({ name }));
    const [measure, level] = this.results.promise?.split(" ") ?? [];
    const promised = [...this.results.verdicts.keys()].filter((id) => measure === "precision" && this.results.rows.get(id)?.isAccepted);
    const entry = { id: this.id, text: this.text, accepted: judged("accepted"), rejected: judged("rejected"), added, proposed, ...(promised.length && { promised, promised_precision: Number(level) }), version: this.version };
    const wasPending = this.isPending;
    this.send.disabled = true;
    try {
      await giveFeedback(entry);
      this.forget();
      this.said.textContent = wasPending ? "Kept." : "Kept. The next text?";
      if (!wasPending) this.onSent();
    } catch (error) {
      this.draw();
      showProblem(this.problem, error, () => this.give());
    }
  }
}

function actionButton(words, action, kind) {
  const button = element("button", { type: "button", class: kind }, words);
  button.addEventListener("click", action);
  return button;
}
