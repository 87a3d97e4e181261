// The texts that wait to be labelled: which one is here, and how many are left.
import { nextDocument } from "./api.js";
import { count } from "./dom.js";
import { hideProblem, showProblem } from "./problems.js";

const NAME = "longtail-annotator";
const find = (id) => document.getElementById(id);

export class Queue {
  /** `onText` is called with a text to label, or with "" where none is left. */
  constructor(onText) {
    this.onText = onText;
    this.document = null; // {document_id, text} that this annotator has
    find("queue-next").addEventListener("click", () => this.next());
    find("queue-skip").addEventListener("click", () => this.next(this.document?.document_id));
  }

  /** Take what GET /v1/models told of feedback. */
  use({ has_queue: hasQueue }) {
    find("queue").hidden = !hasQueue;
  }

  /** Return the text of the queue where this is what the box shows of it: a box has its own line ends. */
  original(shown) {
    return this.document && this.shown === shown ? this.document.text : shown;
  }

  /** Return the id of a text of the queue; null for any other. */
  idOf(text) {
    return this.document?.text === text ? this.document.document_id : null;
  }

  async next(skipped) {
    this.setBusy(true);
    try {
      const found = await nextDocument(annotator(), skipped);
      hideProblem(find("queue-problem"));
      this.document = found.document;
      this.say(found);
      this.onText(this.document?.text ?? "");
    } catch (error) {
      showProblem(find("queue-problem"), error, () => this.next(skipped));
    } finally {
      this.setBusy(false);
    }
  }

  /** Remember how the box shows the text. */
  note(shown) {
    this.shown = shown;
  }

  say({ document, total, done, taken }) {
    const others = taken ? `, ${count(taken)} with others` : "";
    const end = taken ? " None is free now; try again later." : " All are done.";
    find("queue-said").textContent = `${count(done)} of ${count(total)} texts done${others}.${document ? "" : end}`;
  }

  setBusy(isBusy) {
    find("queue-next").disabled = isBusy;
    find("queue-skip").disabled = isBusy || !this.document;
  }
}

let memory = "";

/** Return the name under which this tab has its text, also after a reload. */
function annotator() {
  memory ||= `page-${crypto.getRandomValues(new Uint32Array(4)).join("-")}`;
  try {
    memory = sessionStorage.getItem(NAME) ?? memory;
    sessionStorage.setItem(NAME, memory);
  } catch {
    // The name is kept as long as the page is.
  }
  return memory;
}
