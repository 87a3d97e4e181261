// The list of labels: rows that keep their identity while their places change.
import { element, percent, plural, rarity, score } from "./dom.js";
import { documents, whyParts } from "./why.js";

const MOVE_MS = 280;
const VERDICT_KEYS = { a: "accepted", r: "rejected" };
const SEND_KEY = "s";
let rowNumber = 0;

export class Results {
  /** @param {HTMLOListElement} list */
  constructor(list) {
    this.list = list;
    this.rows = new Map(); // by label id
    this.verdicts = new Map(); // {verdict: "accepted" or "rejected", name}, by label id
    this.areVerdictsOffered = false;
    this.areVerdictsPaused = false;
    this.onVerdict = () => {};
    this.onSend = () => {};
    list.addEventListener("keydown", (event) => this.onKey(event));
  }

  /** Show verdicts or not; paused, they are shown and can't be changed. */
  offerVerdicts(areOffered, arePaused) {
    this.areVerdictsOffered = areOffered;
    this.areVerdictsPaused = arePaused;
    this.showVerdicts();
  }

  /** Accept or reject a label of the list; the same verdict again takes it back. */
  judge(id, verdict) {
    if (this.areVerdictsPaused) return;
    if (this.verdicts.get(id)?.verdict === verdict) this.verdicts.delete(id);
    else this.verdicts.set(id, { verdict, name: this.rows.get(id).name.textContent });
    this.onVerdict(id);
  }

  forgetVerdicts() {
    this.verdicts.clear();
  }

  showVerdicts() {
    for (const [id, row] of this.rows) row.showVerdict(this.areVerdictsOffered, this.areVerdictsPaused, this.verdicts.get(id)?.verdict);
  }

  onKey(event) {
    const verdict = VERDICT_KEYS[event.key];
    const isSent = event.key === SEND_KEY;
    const id = event.target.closest(".result")?.dataset.id;
    if (!(verdict || isSent) || !id || !this.areVerdictsOffered || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (isSent) this.onSend();
    else this.judge(id, verdict);
  }

  /**
   * Show an answer; `before` maps ids to places without preference for rare labels, null where that
   * was not asked. From `threshold` on, a probability, the model takes a label for right; null: the
   * labels are not in the order of their probabilities. With `promise`, the name of the one by which
   * labels are accepted, these come first, and a line says which labels to check, and why.
   */
  show({ text, scorer, result, before, threshold, promise }) {
    const { labels } = result;
    this.promise = promise;
    const shown = promise ? [...labels.filter(({ accepted }) => accepted), ...labels.filter(({ accepted }) => !accepted)] : labels;
    const doubtful = new Set((result.warnings ?? []).flatMap((warning) => warning.label_ids));
    // A bar is a probability. Scores have no zero and no end, so that a bar would show a confidence
    // that is not there; and of a text without a known word all labels are guesses.
    const isScaled = hasProbabilities(labels) && result.known_tokens > 0;
    this.list.classList.toggle("unscaled", !isScaled);
    const places = new Map([...this.rows].map(([id, row]) => [id, row.item.offsetTop]));
    const focused = document.activeElement;
    const kept = new Set(labels.map((label) => label.id));
    for (const [id, row] of this.rows) {
      if (kept.has(id)) continue;
      row.item.remove();
      this.rows.delete(id);
    }
    const lines = promise ? promiseLines(result, promise) : thresholdLines(labels, threshold);
    shown.forEach((label, place) => {
      const index = labels.indexOf(label);
      const row = this.rows.get(label.id) ?? new Row((verdict) => this.judge(label.id, verdict));
      this.rows.set(label.id, row);
      const share = isScaled ? label.probability : 0;
      const move = moveOf(label, index, before);
      row.update({ text, scorer, label, index, share, move, isDoubtful: doubtful.has(label.id) });
      row.showLine(lines[place] ?? "");
      if (this.list.children[place] !== row.item) this.list.insertBefore(row.item, this.list.children[place] ?? null);
    });
    if (this.list.contains(focused)) focused.focus({ preventScroll: true });
    this.animate(places);
  }

  clear() {
    this.rows.clear();
    this.list.replaceChildren();
  }

  /** Mark labels that another list does not have; null: there is no other list. */
  compareWith(others) {
    for (const [id, row] of this.rows) row.only.hidden = others === null || others.has(id);
  }

  animate(places) {
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
    for (const [id, row] of this.rows) {
      const was = places.get(id);
      if (was === undefined) {
        if (places.size) row.item.animate([{ opacity: 0 }, { opacity: 1 }], { duration: MOVE_MS });
        continue;
      }
      const distance = was - row.item.offsetTop;
      if (!distance) continue;
      const steps = [{ transform: `translateY(${distance}px)` }, { transform: "none" }];
      row.item.animate(steps, { duration: MOVE_MS, easing: "ease-out" });
    }
  }
}

class Row {
  /** `onVerdict` is called with "accepted" or "rejected". */
  constructor(onVerdict) {
    const id = `why-${++rowNumber}`;
    this.rank = element("span", { class: "rank" });
    this.name = element("span", { class: "name" });
    this.move = element("span", { class: "move" });
    this.only = element("span", { class: "tag", hidden: true }, "only here");
    this.doubt = element("span", { class: "tag doubt", hidden: true }, "too high?");
    this.count = element("span", { class: "count" });
    this.value = element("span", { class: "value" });
    this.fill = element("span", { class: "fill" });
    this.head = element(
      "button",
      { type: "button", class: "result-head", aria: { expanded: "false", controls: id } },
      this.rank,
      this.name,
      element("span", { class: "meta" }, this.count, this.move, this.only, this.doubt),
      this.value,
      element("span", { class: "bar", aria: { hidden: "true" } }, this.fill),
    );
    this.why = element("div", { class: "why", id, hidden: true });
    this.id = element("code", { class: "label-id" });
    this.line = element("p", { class: "line", hidden: true });
    this.entry = element("a", { class: "entry" }, "Catalogue");
    this.accept = element("button", { type: "button", class: "quiet accept" }, "Accept");
    this.reject = element("button", { type: "button", class: "quiet reject" }, "Reject");
    this.verdict = element("span", { class: "verdict", hidden: true }, this.accept, this.reject);
    this.accept.addEventListener("click", () => onVerdict("accepted"));
    this.reject.addEventListener("click", () => onVerdict("rejected"));
    const identity = element("div", { class: "identity" }, this.id, this.entry, this.verdict);
    this.item = element("li", { class: "result" }, this.line, this.head, identity, this.why);
    this.head.addEventListener("click", () => this.toggle());
  }

  update({ text, scorer, label, index, share, move, isDoubtful }) {
    const { explanation, probability } = label;
    this.item.dataset.id = label.id;
    this.rank.textContent = `${index + 1}`;
    this.name.textContent = label.name;
    if (probability === null) this.value.replaceChildren(element("span", { class: "unit" }, "score "), score(label.score));
    else this.value.replaceChildren(percent(probability));
    this.value.title = probability === null ? "no probability" : `probability; score ${score(label.score)}`;
    this.id.textContent = label.id;
    this.id.hidden = label.id === label.name;
    this.accept.setAttribute("aria-label", `Accept ${label.name}`);
    this.reject.setAttribute("aria-label", `Reject ${label.name}`);
    this.entry.href = `#labels/${encodeURIComponent(label.id)}`;
    this.entry.setAttribute("aria-label", `${label.name} in the catalogue`);
    this.doubt.hidden = !isDoubtful;
    this.isAccepted = Boolean(label.accepted);
    this.fill.style.setProperty("--share", share.toFixed(4));
    const kind = explanation ? rarity(explanation.training_count) : "common";
    this.item.className = `result ${kind}`;
    this.count.textContent = explanation ? documents(explanation.training_count) : "";
    this.count.title = explanation ? plural(explanation.training_count, "training document") : "";
    this.showMove(move);
    this.head.disabled = !explanation;
    this.content = explanation && (() => whyParts(text, explanation, scorer));
    if (!this.why.hidden) this.fillWhy();
  }

  /** Draw a line with words above the label; "": there is none. */
  showLine(words) {
    this.line.textContent = words;
    this.line.hidden = !words;
  }

  showVerdict(isOffered, isPaused, verdict) {
    this.verdict.hidden = !isOffered;
    this.accept.disabled = this.reject.disabled = isPaused;
    this.accept.setAttribute("aria-pressed", `${verdict === "accepted"}`);
    this.reject.setAttribute("aria-pressed", `${verdict === "rejected"}`);
  }

  showMove(move) {
    this.move.className = `move ${move > 0 ? "up" : move < 0 ? "down" : ""}`;
    if (move === null || move === 0) {
      this.move.replaceChildren();
    } else if (move === Infinity) {
      this.move.replaceChildren("▲ new");
    } else {
      const words = `${move > 0 ? "up" : "down"} ${Math.abs(move)}`;
      this.move.replaceChildren(
        element("span", { aria: { hidden: "true" }, title: words }, `${move > 0 ? "▲" : "▼"} ${Math.abs(move)}`),
        element("span", { class: "unseen" }, words),
      );
    }
  }

  toggle() {
    const opens = this.why.hidden;
    this.head.setAttribute("aria-expanded", `${opens}`);
    this.why.hidden = !opens;
    if (opens) this.fillWhy();
  }

  fillWhy() {
    if (this.content) this.why.replaceChildren(...this.content());
  }
}

export const hasProbabilities = (labels) => labels.every((label) => label.probability !== null);

const WHY_ABSTAINED = {
  "no-known-word": "the model knows no word of the text",
  "unlike-training": "the text is unlike those that the model learned from",
  "below-threshold": "none is likely enough",
};

/** Return the words of the line that ends the labels that the model takes for right, by its place. */
function thresholdLines(labels, threshold) {
  const end = threshold === null ? -1 : labels.findIndex(({ probability }) => probability < threshold);
  const from = percent(threshold);
  // Probabilities know how rare a label is, and need not fall with the rank.
  const behind = labels.slice(Math.max(end, 0)).filter(({ probability }) => probability >= threshold).length;
  const also = behind ? `; ${behind} more below` : "";
  if (!end && !behind) return { [end]: `No label reaches ${from}, from which the model takes one for right` };
  return { [end]: `${end ? "Above: labels" : "Labels"} that the model takes for right (${from} and more${also})` };
}

/** Return the words of the lines above accepted labels and above the others, by their places. */
function promiseLines({ labels, abstained_because: reason }, promise) {
  const end = labels.filter(({ accepted }) => accepted).length;
  if (!end) return { 0: `Please check all labels: none keeps the promise “${promise}”, as ${WHY_ABSTAINED[reason]}` };
  return { 0: `Accepted: these keep the promise “${promise}”`, [end]: "Please check: these are not likely enough for it" };
}

function moveOf(label, index, before) {
  if (!before) return null;
  return before.has(label.id) ? before.get(label.id) - index : Infinity;
}
