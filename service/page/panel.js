// One setting and what it finds: the labels, and the settings folded above them.
import { languageAsked, predict } from "./api.js";
import { copyText, count, debounced, element, fillSelect, plural, rarity } from "./dom.js";
import { Review } from "./feedback.js";
import { hideProblem, showProblem } from "./problems.js";
import { Results, hasProbabilities } from "./results.js";
import { fillAims, methodChoices } from "./words.js";

const DIAL_PAUSE_MS = 120;
const ASKING_MS = 150; // a faster answer just comes
const COPIED_MS = 1500;
export class Panel {
  /** `onAnswer` is called with this panel when labels have come, `onSent` when feedback is kept; null: none is taken. */
  constructor(title, onAnswer, onSent) {
    const made = document.getElementById("panel").content.cloneNode(true);
    this.root = made.querySelector(".panel");
    const find = (name) => this.root.querySelector(name);
    this.title = find(".panel-title");
    this.setTitle(title);
    [this.version, this.scorer, this.correction, this.aim] = [".version-choice", ".scorer", ".correction", ".aim"].map(find);
    [this.dial, this.dialValue] = [".tail-dial", ".dial-value"].map(find);
    [this.problem, this.summary, this.technical, this.cautions] = [".problem", ".summary", ".technical", ".cautions"].map(find);
    [this.after, this.copy, this.copied] = [".after", ".copy-labels", ".copied"].map(find);
    this.results = new Results(find(".results"));
    this.review = onSent && new Review(this.results, onSent);
    if (this.review) {
      this.results.list.before(this.review.pending);
      this.root.append(this.review.root);
    }
    this.onAnswer = onAnswer;
    this.question = null; // {text, k} as asked last
    this.labels = null;
    this.before = { key: "", places: null };
    this.listen();
  }

  listen() {
    const askLater = debounced(DIAL_PAUSE_MS, () => this.ask());
    this.version.addEventListener("change", () => {
      this.fillScorers();
      this.ask();
    });
    this.scorer.addEventListener("change", () => {
      this.fillCorrections();
      this.fillAims();
      this.ask();
    });
    this.correction.addEventListener("change", () => this.ask());
    this.aim.addEventListener("change", () => {
      this.useDialOrAim();
      this.ask();
    });
    this.copy.addEventListener("click", () => this.copyLabels());
    this.dial.addEventListener("input", () => {
      this.showDial();
      askLater();
    });
  }

  setTitle(title) {
    this.title.textContent = title;
    this.root.setAttribute("aria-label", title);
  }

  /** Take what GET /v1/models says; what was chosen stays chosen where it can. */
  useModels({ models, limits, feedback }) {
    this.review?.use(feedback);
    const loaded = models.filter((model) => model.loaded);
    this.models = loaded;
    this.limits = limits;
    const choices = [["", "the current one"], ...loaded.map(({ version }) => [`${version}`, `${version}`])];
    fillSelect(this.version, choices);
    this.version.parentElement.hidden = loaded.length < 2;
    this.fillScorers();
  }

  get model() {
    const chosen = Number(this.version.value);
    return this.models?.find((model) => (chosen ? model.version === chosen : model.default));
  }

  fillScorers() {
    if (!this.model) return;
    const { scorers, default_scorer: best } = this.model;
    const before = this.scorer.value;
    fillSelect(this.scorer, methodChoices(scorers), before || best);
    this.fillCorrections(this.scorer.value === before ? this.correction.value : undefined);
    this.fillAims();
  }

  /** Offer the scorer's corrections, its own one chosen unless another is named. */
  fillCorrections(chosen) {
    const corrections = this.model.corrections[this.scorer.value] ?? ["none"];
    fillSelect(this.correction, corrections.map((name) => [name, name]), chosen ?? corrections[0]);
    this.correction.parentElement.hidden = corrections.length < 2;
  }

  /** Offer the scorer's aims; the chosen one stays where it can, and the control hides where there is no choice. */
  fillAims(chosen) {
    fillAims(this.aim, this.model.aims[this.scorer.value], chosen);
    this.useDialOrAim();
  }

  /** An aim other than the scorer's own says how much rare labels count, and so does the dial: only one of them may. */
  useDialOrAim() {
    this.dial.disabled = this.hasAim;
    if (!this.hasAim) return;
    this.dial.value = 0;
    this.showDial();
  }

  get hasAim() {
    return this.aim.selectedIndex > 0;
  }

  /** Take over another panel's settings. */
  copyFrom(other) {
    this.version.value = other.version.value;
    this.fillScorers();
    this.scorer.value = other.scorer.value;
    this.fillCorrections();
    this.correction.value = other.correction.value;
    this.fillAims(other.aim.value);
    this.dial.value = other.dial.value;
    this.showDial();
  }

  /** What is chosen, by the names that a link has. */
  get settings() {
    return {
      version: this.version.value,
      scorer: this.scorer.value,
      correction: this.correction.value,
      aim: this.hasAim ? this.aim.value : "",
      tail_dial: Number(this.dial.value) || "",
    };
  }

  /** Choose what a link names; returns what is not there. */
  restore({ version, scorer, correction, aim, tail_dial: dial }) {
    const lacking = [];
    const choose = (select, what, value) => {
      if (!value) return;
      if ([...select.options].some((option) => option.value === value)) select.value = value;
      else lacking.push(`${what} “${value}”`);
    };
    choose(this.version, "model version", version);
    this.fillScorers();
    choose(this.scorer, "method", scorer);
    this.fillCorrections();
    choose(this.correction, "correction", correction);
    this.fillAims();
    choose(this.aim, "aim", aim);
    this.useDialOrAim();
    if (!this.hasAim) this.dial.value = Number(dial) || 0;
    this.showDial();
    return lacking;
  }

  /** Copy names, ids and probabilities as columns, or show them where copying is not allowed. */
  async copyLabels() {
    this.copied.textContent = this.labels.map(({ id, name, probability, score }) => [name, id, probability ?? score].join("\t")).join("\n");
    this.copied.hidden = false;
    const isCopied = await copyText(this.copied);
    this.copied.hidden = isCopied;
    this.copy.textContent = isCopied ? "Copied" : "Selected";
    setTimeout(() => (this.copy.textContent = "Copy the labels"), COPIED_MS);
  }

  showDial() {
    this.dialValue.textContent = Number(this.dial.value) ? Number(this.dial.value).toFixed(2) : "off";
  }

  /** Ask, or ask again with other settings; what was asked before is given up. */
  async ask(question = this.question) {
    this.question = question;
    if (!question || !this.model) return;
    this.running?.abort();
    const running = new AbortController();
    this.running = running;
    this.setBusy(true);
    const started = performance.now();
    try {
      const [answer, before] = await Promise.all([
        predict(this.bodyOf(question), running.signal),
        this.placesBefore(question, running.signal),
      ]);
      if (this.running === running) this.show(question.text, answer, before, performance.now() - started);
    } catch (error) {
      if (error.name === "AbortError") return;
      running.abort(); // its other half
      this.fail(error);
    } finally {
      if (this.running === running) this.setBusy(false);
    }
  }

  bodyOf({ text, k, under }) {
    const model = this.model;
    const explained = this.limits.max_explained_labels;
    const most = Math.min(k, model.label_count, this.limits.max_k, explained || k);
    return {
      text,
      k: most,
      scorer: this.scorer.value,
      correction: this.correction.value,
      tail_dial: Number(this.dial.value),
      explain: explained > 0,
      ...languageAsked(),
      ...(under && { under: [under] }),
      ...(this.hasAim && { aim: this.aim.value }),
      ...(this.promise && { accept: true }),
      ...(this.version.value && { version: model.version }),
    };
  }

  /** The name of the promise by which labels are accepted; null where the model makes none for these settings. */
  get promise() {
    const isAsTrained = this.correction.value === (this.model.corrections[this.scorer.value] ?? ["none"])[0];
    const isPlain = isAsTrained && !this.hasAim && Number(this.dial.value) === 0;
    return (isPlain && this.model.promises[this.scorer.value]?.[0]) || null;
  }

  /** Return the places of labels at dial 0, or null where the dial is there. */
  async placesBefore(question, signal) {
    const asked = { ...this.bodyOf(question), tail_dial: 0, explain: false };
    const key = JSON.stringify(asked);
    if (Number(this.dial.value) === 0) return null;
    if (this.before.key !== key) {
      const { results } = await predict(asked, signal);
      this.before = { key, places: placesOf(results[0].labels) };
    }
    return this.before.places;
  }

  show(text, answer, before, milliseconds) {
    const [result] = answer.results;
    this.labels = result.labels;
    hideProblem(this.problem);
    this.results.show({ text, scorer: answer.scorer, result, before, threshold: this.thresholdOf(answer), promise: result.abstained === undefined ? null : this.promise });
    this.review?.start(text, answer.model.version);
    this.root.classList.remove("stale");
    this.after.hidden = false;
    this.copied.hidden = true;
    this.copy.disabled = !this.labels.length;
    this.summary.textContent = summaryOf(result);
    this.technical.textContent = `Version ${answer.model.version} answered in ${count(Math.round(milliseconds))} ms.`;
    this.cautions.replaceChildren(...cautionsOf(answer, result).map(([words, title]) => element("p", { title }, words)));
    this.onAnswer(this);
  }

  /** Return the probability from which the model takes a label for right; null where labels have another order. */
  thresholdOf({ model, scorer, tail_dial: dial }) {
    const found = this.models.find(({ version }) => version === model.version)?.thresholds[scorer];
    return this.hasAim || dial > 0 ? null : (found ?? null);
  }

  fail(error) {
    this.root.classList.add("stale");
    showProblem(this.problem, error, () => this.ask());
  }

  clear() {
    this.running?.abort();
    this.question = null;
    this.labels = null;
    this.results.clear();
    this.review?.start(null, null);
    this.after.hidden = true;
    hideProblem(this.problem);
    this.summary.textContent = "";
    this.cautions.replaceChildren();
    this.technical.textContent = "";
    this.root.classList.remove("stale");
    this.setBusy(false);
  }

  setBusy(isBusy) {
    clearTimeout(this.asking);
    this.root.setAttribute("aria-busy", `${isBusy}`);
    this.root.classList.remove("asking");
    if (isBusy) this.asking = setTimeout(() => this.root.classList.add("asking"), ASKING_MS);
  }

  /** Bring the labels into view, where they are below it. */
  scrollTo() {
    if (this.root.getBoundingClientRect().top > innerHeight * 0.6) this.root.scrollIntoView({ block: "start" });
  }

  get ids() {
    return new Set((this.labels ?? []).map((label) => label.id));
  }

  get numRare() {
    return rareOf(this.labels ?? []).length;
  }
}

const placesOf = (labels) => new Map(labels.map((label, index) => [label.id, index]));

/** Return what to know before relying on the labels: [sentence, details]. */
export function cautionsOf(answer, { labels, known_tokens: known, warnings = [] }) {
  if (!labels.length) return known === 0 ? [["The model knows no word of this text.", ""]] : [];
  const unlike = warnings.find(({ code }) => ["unlike-training", "few-known-words"].includes(code));
  const doubtful = warnings.find(({ code }) => code === "unreliable-probabilities");
  const order =
    answer.tail_dial > 0
      ? "While rare labels are preferred, labels have no percentages: the values only put them in order."
      : "With this method labels have no percentages: the values only put them in order.";
  return [
    known === 0 && ["The model knows no word of this text: it gives these labels to any such text. They are no answer.", ""],
    !hasProbabilities(labels) && [order, ""],
    unlike && ["This text is unlike those that the model learned from, so its percentages may be far off. Check the labels.", unlike.detail],
    doubtful && ["Labels marked “too high?” have at most one training document: their percentages are often far too high. Check them.", doubtful.detail],
  ].filter(Boolean);
}

const rareOf = (labels) =>
  labels.filter((label) => label.explanation && rarity(label.explanation.training_count) !== "common");

function summaryOf({ labels, exact, truncated, num_tokens: read, num_text_tokens: all }) {
  const rare = rareOf(labels).length;
  return [
    plural(labels.length, "label") + (rare ? `, ${rare} rare` : ""),
    !exact && "perhaps not the very best",
    truncated && `only the first ${count(read)} of ${plural(all, "token")} read`,
  ]
    .filter(Boolean)
    .join(" · ");
}
