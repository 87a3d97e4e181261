// The view that asks: a text, one setting or two, and what they find.
import { labels as fetchLabels } from "./api.js";
import { copyText, count, debounced, percent, plural, score } from "./dom.js";
import { MAX_LINKED_CHARACTERS, linkTo } from "./links.js";
import { Panel } from "./panel.js";
import { showProblem } from "./problems.js";

const TYPING_PAUSE_MS = 500;
const MAX_FILE_BYTES = 4_000_000;
const COPIED_MS = 1500;
const EXAMPLE_NAMES = 3; // of labels, where a model brings no text along
const find = (id) => document.getElementById(id);

export class AskView {
  constructor() {
    this.text = find("text");
    this.compare = find("compare");
    this.panels = [this.newPanel("Labels", () => this.text.select())];
    find("panels").append(this.panels[0].root);
    this.limits = null;
    this.asked = ""; // the text that was asked about last
    this.under = null; // id of the label below which all answers are
    this.linked = null; // the question of an address, until there are models
    this.isAwaited = false; // somebody waits for the labels, and does not go on typing
    this.listen();
  }

  newPanel(title, onSent = null) {
    return new Panel(title, (panel) => this.onAnswer(panel), onSent);
  }

  listen() {
    const askLater = debounced(TYPING_PAUSE_MS, () => {
      if (this.text.value !== this.asked) this.ask(); // a key or the button may have been faster
    });
    this.text.addEventListener("input", (event) => {
      this.showSize();
      if (event.inputType === "insertFromPaste") this.ask();
      else askLater();
    });
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.findLabels();
      }
    });
    find("go").addEventListener("click", () => this.findLabels());
    find("k").addEventListener("change", () => this.ask());
    find("under-clear").addEventListener("click", () => this.setUnder(null));
    find("link-copy").addEventListener("click", () => this.copyLink());
    find("example").addEventListener("click", () => this.showExample());
    find("clear").addEventListener("click", () => {
      this.setText("");
      this.ask();
      this.text.focus();
    });
    this.compare.addEventListener("change", () => this.setCompare(this.compare.checked));
    this.listenForFiles();
  }

  listenForFiles() {
    const drop = find("drop");
    const input = find("file");
    find("file-open").addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      if (input.files.length) this.read(input.files[0]);
      input.value = "";
    });
    for (const name of ["dragenter", "dragover"]) {
      drop.addEventListener(name, (event) => {
        event.preventDefault();
        drop.classList.add("over");
      });
    }
    for (const name of ["dragleave", "drop"]) drop.addEventListener(name, () => drop.classList.remove("over"));
    drop.addEventListener("drop", (event) => {
      event.preventDefault();
      const [file] = event.dataTransfer.files;
      const dropped = event.dataTransfer.getData("text/plain");
      if (file) this.read(file);
      else if (dropped) this.findFor(dropped);
    });
    // A file that misses the box must not replace the page.
    for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());
  }

  async read(file) {
    if (file.size > MAX_FILE_BYTES) {
      this.refuse("The file is too large", `${file.name} has ${count(file.size)} bytes; expected at most ${count(MAX_FILE_BYTES)}.`);
      return;
    }
    try {
      const content = await file.arrayBuffer();
      this.findFor(new TextDecoder("utf-8", { fatal: true }).decode(content));
    } catch {
      this.refuse("The file can't be read", `${file.name} is no text in UTF-8.`);
    }
  }

  setText(text) {
    this.text.value = text;
    this.showSize();
  }

  findFor(text) {
    this.setText(text);
    this.findLabels();
  }

  /** Ask as a person does who waits for the labels: they come into view. */
  findLabels() {
    this.ask();
    this.isAwaited = true;
    if (!this.text.value.trim()) this.refuse("There is no text yet", "Write or paste one, or take the example.");
    this.panels[0].scrollTo();
  }

  /** Ask about a text that the model brings along, or else about names of its labels. */
  async showExample() {
    const { model } = this.panels[0];
    if (!model) return;
    try {
      this.findFor(model.example ?? (await fetchLabels({ limit: EXAMPLE_NAMES })).labels.map(({ name }) => name).join("\n"));
    } catch (error) {
      showProblem(this.panels[0].problem, error, () => this.showExample());
    }
  }

  showSize() {
    const length = Array.from(this.text.value).length;
    const most = this.limits?.max_text_characters;
    const isTooLong = most !== undefined && length > most;
    find("text-size").textContent = isTooLong
      ? `${count(length)} of ${plural(most, "character")}`
      : plural(length, "character");
    find("text-size").classList.toggle("bad", isTooLong);
  }

  setCompare(isOn) {
    const container = find("panels");
    container.classList.toggle("two", isOn);
    document.body.classList.toggle("comparing", isOn);
    if (isOn && this.panels.length === 1) {
      const second = this.newPanel("B");
      second.useModels(this.models);
      second.copyFrom(this.panels[0]);
      this.panels.push(second);
      container.append(second.root);
      second.ask(this.panels[0].question);
    } else if (!isOn && this.panels.length === 2) {
      const second = this.panels.pop();
      second.clear();
      second.root.remove();
      this.panels[0].results.compareWith(null);
    }
    this.panels[0].setTitle(isOn ? "A" : "Labels");
    for (const panel of this.panels) panel.root.querySelector("details").open = isOn;
  }

  /** Copy the address of this question, or show it where copying is not allowed. */
  async copyLink() {
    const shown = find("link");
    const text = this.text.value;
    if (!text.trim() || text.length > MAX_LINKED_CHARACTERS) {
      const detail = text.trim() ? `It has ${plural(text.length, "character")}; at most ${count(MAX_LINKED_CHARACTERS)} fit.` : "Write or paste a text first.";
      this.refuse("There is no link to this text", detail);
      return;
    }
    shown.textContent = linkTo({ text, k: find("k").value, under: this.under ?? "", ...this.panels[0].settings });
    shown.hidden = false;
    const isCopied = await copyText(shown);
    shown.hidden = isCopied;
    find("link-copy").textContent = isCopied ? "Copied" : "Selected";
    setTimeout(() => (find("link-copy").textContent = "Link"), COPIED_MS);
  }

  /** Ask the question of an address; what this model lacks is shown. */
  restore(question) {
    this.linked = question;
    if (this.panels[0].model) this.followLink();
  }

  followLink() {
    const { text, k, under, ...settings } = this.linked;
    this.linked = null;
    if (under) this.setUnder({ id: under, name: under });
    if ([...find("k").options].some((option) => option.value === k)) find("k").value = k;
    const lacking = this.panels[0].restore(settings);
    find("link-note").textContent = lacking.length ? `The link asked for ${lacking.join(", ")}, which this model does not have.` : "";
    this.setText(text);
    this.ask();
  }

  /** Take what GET /v1/models says. */
  useModels(models) {
    this.models = models;
    this.limits = models.limits;
    this.compare.disabled = false;
    this.showSize();
    const wasWaiting = !this.panels[0].model;
    for (const panel of this.panels) panel.useModels(models);
    if (this.linked) this.followLink();
    else if (wasWaiting) this.ask();
  }

  ask() {
    this.isAwaited = false;
    const text = (this.asked = this.text.value);
    if (!text.trim()) {
      for (const panel of this.panels) panel.clear();
      find("said").textContent = "";
      return;
    }
    const question = { text, k: Number(find("k").value), under: this.under };
    for (const panel of this.panels) panel.ask(question);
  }

  /** Ask only for a label and those below it: {id, name}; null: for all. */
  setUnder(label) {
    this.under = label?.id ?? null;
    find("under").hidden = !label;
    find("under-name").textContent = label?.name ?? "";
    this.ask();
  }

  refuse(title, detail) {
    showProblem(this.panels[0].problem, { title, detail, status: 422 });
  }

  onAnswer(panel) {
    if (this.isAwaited) panel.scrollTo();
    this.isAwaited = false;
    if (this.panels.length === 2) {
      const [first, second] = this.panels;
      const both = first.labels && second.labels;
      first.results.compareWith(both ? second.ids : null);
      second.results.compareWith(both ? first.ids : null);
    }
    const [best] = panel.labels;
    const where = this.panels.length === 2 ? `${panel.title.textContent}: ` : "";
    const value = best && (best.probability === null ? `score ${score(best.score)}` : percent(best.probability));
    const cautions = panel.cautions.textContent;
    find("said").textContent = best
      ? `${where}${plural(panel.labels.length, "label")}, ${panel.numRare} rare. First: ${best.name}, ${value}.${cautions && ` ${cautions}`}`
      : `${where}No label fits.`;
  }
}
