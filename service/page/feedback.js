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
    this.outcome = ""; // what became of the last entry, until something is judged or another text answered
    this.added = new Map(); // names by label id
    this.proposed = new Set(); // names of labels that the model lacks
    this.searched = "";
    this.hits = null; // labels that match what was searched; null: not known
    this.query = element("input", { type: "search", autocomplete: "off", maxLength: 1000 });
    this.hint = element("p", { class: "muted hint" });
    this.hint.setAttribute("role", "status");
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
      this.hint,
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
    this.results.onVerdict = (id) => {
      this.added.delete(id); // one verdict of each label
      this.change();
    };
    this.results.onSend = () => this.send.click();
    this.query.addEventListener("input", debounced(SEARCH_PAUSE_MS, () => this.query.value.trim() !== this.searched && this.search()));
    this.query.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing) return;
      event.preventDefault();
      this.enter();
    });
  }

  /** Take what GET /v1/models says of feedback. */
  use({ enabled, keeps_texts: keepsTexts }) {
    this.isOn = enabled;
    this.kept.textContent = keepsTexts ? "The service keeps the text." : "The service does not keep the text, only its SHA-256.";
    this.draw();
  }

  /** Go on with an answer; null: there is none. What is not sent stays, and belongs to its own text. */
  start(text, version) {
    if (text !== this.shown.text) this.outcome = "";
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
    this.search();
    hideProblem(this.problem);
    this.adopt();
  }

  get number() {
    return this.results.verdicts.size + this.added.size + this.proposed.size;
  }

  /** Another content is another entry. */
  change() {
    this.outcome = "";
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
    this.query.disabled = this.found.hidden = this.isPending;
    this.pending.hidden = !this.isPending;
    this.keep.hidden = this.shown.text === null;
    this.send.disabled = !this.number || this.isPending;
    this.said.textContent = this.number ? `${plural(this.number, "label")} judged` : this.outcome;
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

  /** Show the labels that match, `hits`. */
  async search() {
    this.searching?.abort();
    this.searching = new AbortController();
    const wanted = this.query.value.trim();
    if (wanted !== this.searched) Object.assign(this, { searched: wanted, hits: null });
    this.hint.textContent = "";
    if (!wanted) {
      this.found.replaceChildren();
      return;
    }
    try {
      const { labels } = await fetchLabels({ query: wanted, limit: NUM_FOUND }, this.searching.signal);
      hideProblem(this.problem);
      const chips = labels.map((label) => this.chip(label.name, `Add ${label.name}`, "+", () => this.add(label)));
      if (!labels.some(({ name }) => isSame(name, wanted))) {
        chips.push(this.chip(`new label “${wanted}”`, `Propose ${wanted} as a new label`, "+", () => this.take(() => this.proposed.add(wanted))));
      }
      this.found.replaceChildren(...chips);
      this.found.scrollIntoView({ block: "nearest" });
      this.hits = labels;
    } catch (error) {
      if (error.name !== "AbortError") showProblem(this.problem, error, () => this.search());
    }
  }

  /** Add the label that is called as typed, or propose it where nothing is alike; else a person chooses. */
  async enter() {
    const wanted = this.query.value.trim();
    if (!this.hits || wanted !== this.searched) await this.search();
    if (!this.hits || wanted !== this.query.value.trim()) return;
    const [label, ...others] = this.hits.filter(({ name }) => isSame(name, wanted));
    if (label && !others.length) this.add(label);
    else if (!this.hits.length) this.take(() => this.proposed.add(wanted));
    else {
      this.hint.textContent = `${label ? "Several labels are" : "No label is"} called “${wanted}”. Choose below.`;
      this.found.scrollIntoView({ block: "nearest" });
      return;
    }
    this.change();
  }

  /** Add a label; one that is in the answer, or judged, is accepted. */
  add({ id, name }) {
    const isJudged = this.results.rows.has(id) || this.results.verdicts.has(id);
    this.added.delete(id);
    this.take(() => (isJudged ? this.results.verdicts.set(id, { verdict: "accepted", name }) : this.added.set(id, name)));
  }

  take(action) {
    action();
    this.query.value = "";
    this.search();
    this.query.focus();
  }

  /** Send the entry; again under the same id where the answer was lost. */
  async give() {
    const judged = (wanted) => [...this.results.verdicts].filter(([, { verdict }]) => verdict === wanted).map(([id]) => id);
    const proposed = [...this.proposed].map((name) => ({ name }));
    const [measure, level] = this.results.promise?.split(" ") ?? [];
    const promised = [...this.results.verdicts.keys()].filter((id) => measure === "precision" && this.results.rows.get(id)?.isAccepted);
    const entry = { id: this.id, text: this.text, accepted: judged("accepted"), rejected: judged("rejected"), added: [...this.added.keys()], proposed, ...(promised.length && { promised, promised_precision: Number(level) }), version: this.version };
    const wasPending = this.isPending;
    this.send.disabled = true;
    try {
      await giveFeedback(entry);
      this.forget();
      this.outcome = wasPending ? "Kept." : "Kept. The next text?";
      this.draw();
      if (!wasPending) this.onSent();
    } catch (error) {
      this.draw();
      showProblem(this.problem, error, () => this.give());
    }
  }
}

function isSame(name, typed) {
  return name.normalize().toLowerCase() === typed.normalize().toLowerCase();
}

function actionButton(words, action, kind) {
  const button = element("button", { type: "button", class: kind }, words);
  button.addEventListener("click", action);
  return button;
}
