// Asks the service this page came from, and says in words what went wrong.

const KEY = "longtail-api-key";
let memory = "";

export function apiKey() {
  try {
    return sessionStorage.getItem(KEY) ?? memory;
  } catch {
    return memory; // storage is switched off
  }
}

export function setApiKey(value) {
  memory = value;
  try {
    if (value) sessionStorage.setItem(KEY, value);
    else sessionStorage.removeItem(KEY);
  } catch {
    // The key is kept as long as the page is.
  }
}

/** What went wrong, as a problem document says it (RFC 9457). */
export class Problem extends Error {
  constructor({ status = 0, title, detail = "", errors = [], retryAfter = null }) {
    super(title);
    Object.assign(this, { status, title, detail, errors, retryAfter });
  }
}

export const predict = (question, signal) => ask("v1/predict", { question, signal });
/** Send one entry of feedback; returns when it is kept. */
export const giveFeedback = (entry) => ask("v1/feedback", { question: { entries: [entry] } });
/** Ask about many texts at once; returns an answer for each line, in order: labels or an error. */
export async function batch(lines, options, signal) {
  const path = `v1/batch?${new URLSearchParams(options)}`;
  for (;;) {
    try {
      const answer = await send(path, { lines: lines.map((line) => JSON.stringify(line)).join("\n"), signal });
      const found = (await answer.text()).trim().split("\n").map((line) => JSON.parse(line));
      const { summary } = found.pop();
      if (summary?.error) throw new Problem(summary.error);
      if (found.length !== lines.length) throw new Problem({ title: "The answer is incomplete", detail: "The service may be restarting." });
      return found;
    } catch (error) {
      if (error.status !== 429) throw error;
      await pause((error.retryAfter ?? 1) * 1000, signal);
    }
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

export const models = (signal) => ask("v1/models", { signal });
let language = "";

/** Have labels named in a language from now on; "": in that of the model. */
export function setLanguage(chosen) {
  language = chosen;
}

export const languageAsked = () => (language ? { language } : {});
export const label = (id, signal) => ask(`v1/labels?${new URLSearchParams({ id, ...languageAsked() })}`, { signal });

export function labels(options, signal) {
  return ask(`v1/labels?${new URLSearchParams({ ...options, ...languageAsked() })}`, { signal });
}

/** The labels right below one; "": those at the top. */
export function narrower(id, offset, limit, signal) {
  return ask(`v1/labels?${new URLSearchParams({ narrower_of: id, offset, limit, ...languageAsked() })}`, { signal });
}

async function ask(path, { question, signal }) {
  return (await send(path, { question, signal })).json();
}

async function send(path, { question, lines, signal }) {
  const headers = {};
  if (question) headers["Content-Type"] = "application/json";
  if (lines) headers["Content-Type"] = "application/x-ndjson";
  if (apiKey()) headers.Authorization = `Bearer ${apiKey()}`;
  let answer;
  try {
    answer = await fetch(path, {
      method: question || lines ? "POST" : "GET",
      body: lines ?? (question && JSON.stringify(question)),
      headers,
      signal,
      credentials: "same-origin",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({
      title: "The service can't be reached",
      detail: "It may be restarting, or the network is down.",
    });
  }
  if (!answer.ok) throw await problemOf(answer);
  return answer;
}

async function problemOf(answer) {
  let told = {};
  try {
    told = await answer.json();
  } catch {
    // Something in front of the service answered.
  }
  const seconds = Number(answer.headers.get("Retry-After"));
  return new Problem({
    status: answer.status,
    title: told.title ?? `The service answered ${answer.status} ${answer.statusText}`.trim(),
    detail: told.detail ?? "",
    errors: told.errors ?? [],
    retryAfter: seconds > 0 ? seconds : null,
  });
}
