// Words of people who tag texts for what the API names.
import { fillSelect } from "./dom.js";

const METHODS = {
  ensemble: "all methods together",
  fast: "all quick methods together",
  hybrid: "meaning and single labels",
  retrieval: "meaning of the text",
  classifier: "meaning, label by label",
  linear: "meaning, label by label",
  sparse: "words of the text",
  names: "names of labels in the text",
  neighbours: "similar documents",
  word_vectors: "meaning of the words",
};
const AIMS = {
  precision: "most labels right",
  propensity: "rare labels, often forgotten",
};

/** Return scorers as choices: what each looks at, and its name. */
export const methodChoices = (scorers) => scorers.map((name) => [name, name in METHODS ? `${METHODS[name]} (${name})` : name]);

/** Offer a scorer's aims; the chosen one stays where it can, and the control hides where there is no choice. */
export function fillAims(select, aims = [], chosen = select.value) {
  fillSelect(select, aims.map((name) => [name, AIMS[name] ?? name]), chosen);
  select.parentElement.hidden = aims.length < 2;
}
