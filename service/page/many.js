// The view of many texts: a file is read here, asked about in parts, and its rows are downloaded with their labels.
import { batch, languageAsked } from "./api.js";
import { count, element, fillSelect, percent, plural, score } from "./dom.js";
import { hideProblem, showProblem } from "./problems.js";
import { download, guessColumns, readTable, taggedCsv } from "./tables.js";
import { fillAims, methodChoices } from "./words.js";

const MAX_FILE_BYTES = 200_000_000;
const PART_TEXTS = 256;
const PART_CHARACTERS = 500_000;
const SHOWN = 20;
const UNLIKE = "unlike-training";
const find = (id) => document.getElementById(id);

export class ManyView {
  constructor() {
    this.table = null;
    this.answers = [];
    find("many-open").addEventListener("click", () => find("many-file").click());
    find("many-file").addEventListener("change", ({ target }) => {
      if (target.files.length) this.read(target.files[0]);
      target.value = "";
    });
    find("many-start").addEventListener("click", () => (this.running ? this.running.abort() : this.start()));
    find("many-scorer").addEventListener("change", () => this.useScorer());
    find("many-download").addEventListener("click", () => download(`${this.name}.labels.csv`, "text/csv", taggedCsv(this.table, this.answers)));
  }

  /** Take what GET /v1/models says. */
  useModels({ models, limits }) {
    this.model = models.find((model) => model.default);
    this.limits = limits;
    if (!this.model) return;
    const { scorers, default_scorer: best } = this.model;
    const before = find("many-scorer").value;
    fillSelect(find("many-scorer"), methodChoices(scorers), before || best);
    if (find("many-scorer").value !== before) this.useScorer();
  }

  /** Offer a scorer's aims, and the probability from which the model takes its labels for right. */
  useScorer() {
    const scorer = find("many-scorer").value;
    const threshold = this.model.thresholds[scorer];
    fillAims(find("many-aim"), this.model.aims[scorer]);
    find("many-threshold").value = threshold === undefined ? "" : (100 * threshold).toFixed(1);
  }

  async read(file) {
    hideProblem(find("many-problem"));
    try {
      if (file.size > MAX_FILE_BYTES) throw new Error(`${file.name} has ${count(file.size)} bytes; expected at most ${count(MAX_FILE_BYTES)}. Use 'longtail predict' for more.`);
      const content = await decoded(file);
      this.table = readTable(file.name, content);
    } catch (error) {
      this.table = null;
      find("many-start").disabled = true;
      showProblem(find("many-problem"), { title: `${file.name} can't be read`, detail: error.message, status: 422 });
      return;
    }
    this.name = file.name.replace(/\.[^.]*$/, "");
    const { columns, rows } = this.table;
    const guess = guessColumns(columns);
    find("many-columns").replaceChildren(
      ...columns.map((column, at) =>
        element("label", { class: "inline" }, element("input", { type: "checkbox", value: `${at}`, checked: guess.includes(at) || columns.length === 1 }), column),
      ),
    );
    find("many-columns").parentElement.hidden = columns.length === 1;
    find("many-found").textContent = `${file.name}: ${plural(rows.length, "text")}`;
    find("many-start").disabled = rows.length === 0;
    this.forget();
  }

  forget() {
    this.answers = [];
    find("many-rows").replaceChildren();
    find("many-results").hidden = true;
    find("many-said").textContent = "";
  }

  get columns() {
    return [...find("many-columns").querySelectorAll(":checked")].map((box) => Number(box.value));
  }

  async start() {
    const columns = this.columns;
    if (!columns.length) {
      showProblem(find("many-problem"), { title: "No column is chosen", detail: "Choose at least one that is read as the text.", status: 422 });
      return;
    }
    this.forget();
    hideProblem(find("many-problem"));
    const running = new AbortController();
    this.running = running;
    find("many-start").textContent = "Stop";
    find("many-open").disabled = true;
    const progress = find("many-progress");
    [progress.max, progress.value, progress.hidden] = [this.table.rows.length, 0, false];
    try {
      for (const part of parts(this.linesOf(columns))) await this.ask(part, running.signal);
    } catch (error) {
      if (error.name !== "AbortError") showProblem(find("many-problem"), error, () => this.start());
    } finally {
      this.running = null;
      find("many-start").textContent = "Find labels";
      find("many-open").disabled = false;
      progress.hidden = true;
      this.tell();
    }
  }

  /** Yield a line of the batch for each row. */
  *linesOf(columns) {
    for (const row of this.table.rows) {
      yield { text: columns.map((column) => row[column]).filter((cell) => cell.trim()).join("\n") };
    }
  }

  async ask(part, signal) {
    const asked = part.filter(({ text }) => text.trim()); // the service refuses blank texts
    const options = {
      k: Math.min(Number(find("many-k").value), this.model.label_count, this.limits.max_k),
      scorer: find("many-scorer").value,
      ...languageAsked(),
    };
    if (find("many-aim").selectedIndex > 0) options.aim = find("many-aim").value;
    const threshold = find("many-threshold").valueAsNumber;
    if (Number.isFinite(threshold)) options.threshold = threshold / 100;
    const found = asked.length ? await batch(asked, options, signal) : [];
    let next = 0;
    for (const line of part) {
      const isBlank = !line.text.trim();
      const answer = isBlank ? { error: { title: "The text is empty" } } : found[next++];
      this.show(line.text, answer);
    }
  }

  show(text, answer) {
    this.answers.push(answer);
    find("many-results").hidden = false;
    find("many-progress").value = this.answers.length;
    find("many-said").textContent = `${count(this.answers.length)} of ${plural(this.table.rows.length, "text")}`;
    if (this.answers.length > SHOWN) return;
    const labels = answer.labels?.map((label) => element("li", {}, label.name, element("span", { class: "muted" }, ` ${worth(label)}`)));
    find("many-rows").append(
      element(
        "tr",
        {},
        element("th", { scope: "row" }, count(this.answers.length)),
        element("td", { class: "start" }, text.slice(0, 160)),
        element("td", {}, labels?.length ? element("ul", {}, ...labels) : element("span", { class: "muted" }, answer.error?.title ?? "No label fits.")),
      ),
    );
  }

  tell() {
    const failed = this.answers.filter((answer) => answer.error).length;
    const unlike = this.answers.filter(isUnlike).length;
    const all = this.table.rows.length;
    const done = this.answers.length < all ? `Stopped after ${count(this.answers.length)} of ${plural(all, "text")}` : `${plural(all, "text")} done`;
    const doubts = [
      failed && `, ${plural(failed, "text")} without an answer (see the download)`,
      unlike && `, ${plural(unlike, "text")} unlike those that the model learned from`,
    ];
    find("many-said").textContent = `${done}${doubts.filter(Boolean).join("")}.`;
  }
}

const isUnlike = ({ warnings = [] }) => warnings.some(({ code }) => code === UNLIKE);

const worth = (label) => (label.probability === null ? `score ${score(label.score)}` : percent(label.probability));

async function decoded(file) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  const isWide = (bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff);
  try {
    return new TextDecoder(isWide ? (bytes[0] === 0xff ? "utf-16le" : "utf-16be") : "utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Error("It is no text in UTF-8 or UTF-16; save it as 'CSV UTF-8'.");
  }
}

function* parts(lines) {
  let [part, characters] = [[], 0];
  for (const line of lines) {
    if (part.length === PART_TEXTS || (part.length && characters + line.text.length > PART_CHARACTERS)) {
      yield part;
      [part, characters] = [[], 0];
    }
    part.push(line);
    characters += line.text.length;
  }
  if (part.length) yield part;
}
