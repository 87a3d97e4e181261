// Where the tokens of an explanation stand in a text, as pieces to show.

const AROUND = 70; // characters shown on each side of a token
const WHOLE = 600; // a text up to this long is shown as it is

/**
 * Return the pieces of a text: `{text, token, contribution}`, of which those without a token are
 * plain, and null where something was left out.
 *
 * Spans are in Unicode code points, as the service counts.
 */
export function piecesOf(text, tokens) {
  const characters = Array.from(text);
  const owner = new Map(); // of a character, the token that counts most there
  for (const token of tokens) {
    for (const [start, stop] of token.spans) {
      for (let place = start; place < stop; place++) {
        const other = owner.get(place);
        if (!other || Math.abs(other.contribution) < Math.abs(token.contribution)) owner.set(place, token);
      }
    }
  }
  const pieces = [];
  let end = 0;
  for (const [start, stop] of windows(characters.length, tokens)) {
    if (start > end) pieces.push(null);
    pieces.push(...piecesBetween(characters, owner, start, stop));
    end = stop;
  }
  if (end < characters.length) pieces.push(null);
  return pieces;
}

function windows(length, tokens) {
  if (length <= WHOLE) return [[0, length]];
  const spans = tokens.flatMap((token) => token.spans).sort((a, b) => a[0] - b[0]);
  if (!spans.length) return [[0, WHOLE]];
  const found = [];
  for (const [start, stop] of spans) {
    const from = Math.max(0, start - AROUND);
    const to = Math.min(length, stop + AROUND);
    const last = found.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else found.push([from, to]);
  }
  return found;
}

function piecesBetween(characters, owner, start, stop) {
  const pieces = [];
  for (let place = start; place < stop; ) {
    const token = owner.get(place);
    let end = place + 1;
    while (end < stop && owner.get(end) === token) end++;
    pieces.push({
      text: characters.slice(place, end).join(""),
      token: token?.token,
      contribution: token?.contribution,
    });
    place = end;
  }
  return pieces;
}
