// Why a label was found: its words in the text, what it is known by, what each scorer gives.
import { count, element, numbersTable, plural, rarity, score, signed } from "./dom.js";
import { piecesOf } from "./highlight.js";

/** Return what to show of an explanation; `scorer` is the one that was asked for. */
export function whyParts(text, explanation, scorer) {
  return [
    explanation.name && part("Its name", element("p", {}, named(explanation.name, text))),
    part("In the text", inText(text, explanation.tokens)),
    explanation.documents.length ? part("Similar training documents", documentList(explanation.documents)) : null,
    explanation.keywords.length ? part("Words that go with it", keywordList(explanation.keywords)) : null,
    explanation.nearest.length ? part("Similar labels", labelLinks(explanation.nearest)) : null,
    part("In training", element("p", {}, seen(explanation.training_count))),
    element(
      "details",
      {},
      element("summary", {}, "In numbers"),
      explanation.tokens && part("What the words add (sparse)", wordsTable(explanation.tokens)),
      explanation.blend.length ? part(`What ${scorer} is made of`, blendTable(explanation.blend)) : null,
      part("Parts of the score", scoresTable(explanation.scores, scorer)),
    ),
  ].filter(Boolean);
}

export function keywordList(keywords) {
  const most = Math.max(...keywords.map((each) => each.weight));
  return element(
    "ul",
    { class: "chips" },
    ...keywords.map((each) => {
      const chip = element("li", { class: "chip", title: `weight ${score(each.weight)}` }, each.token);
      chip.style.setProperty("--share", Math.max(0, each.weight / most).toFixed(3));
      return chip;
    }),
  );
}

/** Return labels as links into the catalogue. */
export function labelLinks(labels) {
  const link = ({ id, name, similarity }) =>
    element("a", { class: "chip", href: `#labels/${encodeURIComponent(id)}`, title: similarity === undefined ? "" : `similarity (cosine) ${score(similarity)}` }, name);
  return element("ul", { class: "chips" }, ...labels.map((label) => element("li", {}, link(label))));
}

/** Return where and how a name of the label stands in the text, in a sentence. */
function named(name, text) {
  const which = name.is_own_name ? `“${name.name}”` : `Another name of it, “${name.name}”,`;
  const times = name.count > 1 ? `, ${name.count} times` : "";
  const how = {
    phrase: `stands in the text${times}`,
    sentence: `has all its words in one sentence of the text${times}`,
    partly: "has some of its words in the text",
  };
  const isAbove = name.in_title && text.trim().includes("\n"); // else all of the text is its first line
  return `${which} ${how[name.manner]}${isAbove ? ", in the first line too" : ""}.`;
}

function documentList(documents) {
  return element(
    "ul",
    { class: "chips" },
    ...documents.map((each) =>
      element(
        "li",
        { class: "chip", title: `cosine ${score(each.similarity)}` },
        each.id,
        element("span", { class: "muted" }, ` ${Math.round(100 * each.share)} %`),
      ),
    ),
  );
}

function blendTable(blend) {
  const heads = ["method", "weight for a label as rare", "adds"];
  return numbersTable(heads, blend.map((each) => [each.scorer, "", score(each.weight), signed(each.contribution)]));
}

export function seen(trainingCount) {
  if (trainingCount === 0) return "No training document carries this label.";
  return `${plural(trainingCount, "training document carries", "training documents carry")} this label.`;
}

function part(title, content) {
  return element("section", { class: "why-part" }, element("h4", {}, title), content);
}

function inText(text, tokens) {
  if (!tokens) {
    return element("p", { class: "muted" }, "The model knows no words for this label, so there are none to mark.");
  }
  const most = Math.max(...tokens.tokens.map((token) => Math.abs(token.contribution)), 1e-9);
  const shown = piecesOf(text, tokens.tokens).map((piece) => {
    if (piece === null) return element("span", { class: "muted", aria: { label: "left out" } }, " … ");
    if (piece.token === undefined) return piece.text;
    const strength = Math.ceil((3 * Math.abs(piece.contribution)) / most);
    const side = piece.contribution < 0 ? "against" : "for";
    return element(
      "mark",
      { class: `${side} strength-${Math.max(1, strength)}`, title: `${piece.token}: ${signed(piece.contribution)}` },
      piece.text,
    );
  });
  return element("p", { class: "excerpt", tabIndex: 0, aria: { label: "The text, its words marked" } }, ...shown);
}

function wordsTable(tokens) {
  const rows = [
    ...tokens.tokens.map((token) => [token.token, token.contribution, ""]),
    ["all other words", tokens.rest, "muted"],
    ["bias of the label", tokens.bias, "muted"],
  ];
  const most = Math.max(...rows.map(([, value]) => Math.abs(value)), 1e-9);
  const sum = rows.reduce((total, [, value]) => total + value, 0);
  return element(
    "table",
    { class: "parts" },
    element("caption", { class: "unseen" }, "What each word adds to the score of the sparse model"),
    element(
      "tbody",
      {},
      ...rows.map(([name, value, kind]) =>
        element(
          "tr",
          { class: kind },
          element("th", { scope: "row" }, name),
          element("td", { class: "bar-cell" }, twoSidedBar(value / most)),
          element("td", { class: "number" }, signed(value)),
        ),
      ),
      element(
        "tr",
        { class: "sum" },
        element("th", { scope: "row" }, "score of sparse"),
        element("td"),
        element("td", { class: "number" }, score(sum)),
      ),
    ),
  );
}

function twoSidedBar(share) {
  const fill = element("span", { class: share < 0 ? "below" : "above" });
  fill.style.setProperty("--share", Math.abs(share).toFixed(3));
  return element("span", { class: "two-sided", aria: { hidden: "true" } }, fill);
}

function scoresTable(scores, asked) {
  const heads = ["method", "own", "correction", "for rarity", "score"];
  const added = (value) => (value ? signed(value) : "–");
  const row = (each) => [each.scorer, each.scorer === asked ? "asked" : "", score(each.base), added(each.correction), added(each.tail_dial), score(each.score)];
  return numbersTable(heads, scores.map(row));
}

/** Return how often a label was seen in training, in few words. */
export function documents(trainingCount) {
  if (trainingCount === 0) return "never seen";
  const words = `${count(trainingCount)} ${trainingCount === 1 ? "doc" : "docs"}`;
  return rarity(trainingCount) === "rare" ? `rare · ${words}` : words;
}
