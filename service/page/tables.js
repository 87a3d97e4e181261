// Files of texts as people have them (CSV, TSV, JSON lines, a text a line), and the same rows with labels.

const DELIMITERS = [",", ";", "\t"];
const ADDED = ["labels", "label_ids", "probabilities", "remarks"];
const TEXT_COLUMNS = ["text", "content", "abstract", "description", "body", "title"];

/** Return {columns, rows} of a file, and of CSV its delimiter and line end; a row has a cell for each column. Throws an Error in words. */
export function readTable(name, content) {
  const text = content.replace(/^\ufeff/, "");
  if (/\.(jsonl|ndjson|json)$/i.test(name)) return readJsonLines(text);
  if (/\.(csv|tsv)$/i.test(name)) return readCsv(text, /\.tsv$/i.test(name) ? ["\t"] : DELIMITERS);
  const rows = lines(text).map((line) => [line]);
  return { columns: ["text"], rows };
}

/** Return the numbers of the columns that are read as the text. */
export function guessColumns(columns) {
  const known = columns.map((column) => column.trim().toLowerCase());
  const title = known.indexOf("title");
  const body = TEXT_COLUMNS.filter((name) => name !== "title").map((name) => known.indexOf(name)).find((at) => at >= 0);
  return known.includes("text") ? [known.indexOf("text")] : [title, body].filter((at) => at >= 0 && at !== undefined);
}

function readJsonLines(text) {
  const records = lines(text).map((line, index) => {
    try {
      const record = JSON.parse(line);
      if (typeof record === "string") return { text: record };
      if (record && typeof record === "object" && !Array.isArray(record)) return record;
    } catch {
      // shown below
    }
    throw new Error(`Line ${index + 1} is no JSON object; expected one a line.`);
  });
  const columns = [...new Set(records.flatMap(Object.keys))];
  const rows = records.map((record) => columns.map((column) => cellOf(record[column])));
  return { columns, rows };
}

const cellOf = (value) => (typeof value === "string" ? value : value === undefined || value === null ? "" : JSON.stringify(value));

const lines = (text) => text.split(/\r?\n/).filter((line) => line.trim());

function readCsv(text, delimiters) {
  const header = text.slice(0, text.search(/\r?\n|$/));
  const delimiter = delimiters.toSorted((a, b) => header.split(b).length - header.split(a).length)[0];
  const [columns, ...rows] = records(text, delimiter);
  if (!columns) throw new Error("The file is empty.");
  const odd = rows.findIndex((row) => row.length !== columns.length);
  if (odd >= 0) {
    throw new Error(`Row ${odd + 2} has ${rows[odd].length} cells; the header has ${columns.length}.`);
  }
  return { columns, rows, delimiter, lineEnd: text[header.length] === "\r" ? "\r\n" : "\n" };
}

/** Return the records of CSV (RFC 4180); quoted cells may hold delimiters, quotes and line ends. */
function records(text, delimiter) {
  const found = [];
  let [row, cell, isQuoted, at] = [[], "", false, 0];
  const endCell = () => {
    row.push(cell);
    cell = "";
  };
  const endRow = () => {
    endCell();
    if (row.length > 1 || row[0] !== "") found.push(row);
    row = [];
  };
  for (; at < text.length; at++) {
    const sign = text[at];
    if (isQuoted) {
      if (sign !== '"') cell += sign;
      else if (text[at + 1] === '"') cell += text[at++];
      else isQuoted = false;
    } else if (sign === '"' && cell === "") isQuoted = true;
    else if (sign === delimiter) endCell();
    else if (sign === "\n") endRow();
    else if (sign !== "\r") cell += sign;
  }
  if (isQuoted) throw new Error("A quote is left open; no row ends after it.");
  if (cell || row.length) endRow();
  return found;
}

/**
 * Return the rows of a table, with the columns behind them that `longtail predict --output x.csv` adds.
 *
 * It opens in Excel: a mark tells UTF-8, and a cell that would run as a formula gets a ' before it;
 * a number with a sign stays. `answers` are those of the batch; rows without one were not asked about.
 */
export function taggedCsv({ columns, rows, delimiter = ",", lineEnd = "\n" }, answers) {
  const taken = new Set(columns.map((column) => column.trim().toLowerCase()));
  let added = ADDED;
  while (added.some((name) => taken.has(name))) added = added.map((name) => `predicted_${name}`);
  const plain = (cell) => (/^([=@\t\r]|[+-](?![\d\s.,%]*$))/.test(cell) ? `'${cell}` : cell);
  const quoted = (cell) => (cell.includes(delimiter) || /["\r\n]/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell);
  const line = (cells) => `${cells.map((cell) => quoted(plain(cell))).join(delimiter)}${lineEnd}`;
  return `\ufeff${line([...columns, ...added])}${rows.map((row, at) => line([...row, ...addedCells(answers[at])])).join("")}`;
}

function addedCells(answer = { error: { title: "not asked" } }) {
  const { labels, error, warnings = [], truncated } = answer;
  if (error) return ["", "", "", error.detail || error.title];
  const known = labels.filter(({ probability }) => probability !== null);
  const remarks = [...warnings.map(({ code }) => code), ...(truncated ? ["truncated"] : [])];
  return [labels.map(({ name }) => name), labels.map(({ id }) => id), known.map(({ probability }) => probability.toFixed(4)), remarks].map(joined);
}

const joined = (parts) => (parts.some((part) => part.includes(";")) ? JSON.stringify(parts) : parts.join("; "));

/** Let the browser save a text as a file. */
export function download(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}
