// Addresses that ask a question again: all of it stands behind the #, which no server ever sees.

export const MAX_LINKED_CHARACTERS = 8000;
const SETTINGS = ["k", "version", "scorer", "correction", "aim", "tail_dial", "under"];

/** Return the address of a question: {text, k, version, scorer, correction, aim, tail_dial, under}. */
export function linkTo(question) {
  const fields = new URLSearchParams({ text: question.text });
  for (const name of SETTINGS) if (question[name]) fields.set(name, question[name]);
  return `${location.href.split("#")[0]}#ask?${fields}`;
}

/** Return the question of an address, or null where it has none. */
export function questionOf(hash) {
  if (!hash.startsWith("#ask?")) return null;
  const fields = new URLSearchParams(hash.slice("#ask?".length));
  return { text: fields.get("text") ?? "", ...Object.fromEntries(SETTINGS.map((name) => [name, fields.get(name) ?? ""])) };
}
