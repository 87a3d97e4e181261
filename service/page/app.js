// The start: which view is shown, what the service has, the API key.
import { apiKey, models as fetchModels, setApiKey, setLanguage } from "./api.js";
import { AskView } from "./ask.js";
import { CatalogueView } from "./catalogue.js";
import { questionOf } from "./links.js";
import { ManyView } from "./many.js";
import { servingWords, showModels } from "./models.js";
import { fillSelect } from "./dom.js";
import { hideProblem, showProblem } from "./problems.js";

const SOON_MS = 2000; // until a model is ready
const LATER_MS = 15000;
const TITLES = { ask: "Find labels", many: "Many texts", labels: "Catalogue", models: "Models" };

const find = (id) => document.getElementById(id);
const ask = new AskView();
const catalogue = new CatalogueView((label) => ask.setUnder(label));
const many = new ManyView();
let timer;
let told = ""; // the last answer
let noticed = ""; // the problem that is shown

/** Look what is loaded, and again after a while. */
async function look() {
  clearTimeout(timer);
  let isReady = false;
  try {
    const found = await fetchModels();
    isReady = found.models.some((model) => model.default);
    if (isReady) hideNotice();
    else showNotice(notReady(found));
    // Settings are filled again only where something has changed, so that no open choice closes.
    if (JSON.stringify(found) !== told) {
      told = JSON.stringify(found);
      showModels(found);
      find("serving").textContent = servingWords(found.models);
      if (isReady) {
        ask.useModels(found);
        many.useModels(found);
        catalogue.useModels(found);
        fillLanguages(found.models.find((model) => model.default));
      }
    }
  } catch (error) {
    told = "";
    find("serving").textContent = "";
    showNotice(error);
    if (error.status === 401) return; // until there is a key
  }
  timer = setTimeout(look, isReady ? LATER_MS : SOON_MS);
}

/** Offer the languages that labels have names in; hidden where there is no choice. */
function fillLanguages({ languages }) {
  const chosen = find("language");
  fillSelect(chosen, [["", "as in the model"], ...languages.map((code) => [code, nameOf(code)])]);
  chosen.parentElement.hidden = languages.length < 2;
  setLanguage(chosen.value);
}

function nameOf(code) {
  try {
    return new Intl.DisplayNames([code, "en"], { type: "language" }).of(code) ?? code;
  } catch {
    return code; // no language tag
  }
}

function notReady({ models, problem }) {
  const why = problem ?? models.findLast((model) => model.load_problem)?.load_problem;
  return { title: "No model is ready yet", detail: why ?? "This page continues automatically once there is one." };
}

/** Show what is wrong with the service, once for as long as it lasts. */
function showNotice(error) {
  const words = `${error.title} ${error.detail}`;
  if (words === noticed) return;
  noticed = words;
  showProblem(find("notice"), error, look);
}

function hideNotice() {
  noticed = "";
  hideProblem(find("notice"));
}

function route() {
  const question = questionOf(location.hash);
  if (question) {
    history.replaceState(null, "", "#ask"); // the text changes, and the address would not
    ask.restore(question);
  }
  const [name, ...rest] = location.hash.slice(1).split("/");
  if (name === "main") return;
  const view = name in TITLES ? name : "ask";
  for (const each of Object.keys(TITLES)) find(`view-${each}`).hidden = each !== view;
  for (const link of document.querySelectorAll("[data-view]")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${TITLES[view]} · Longtail`;
  if (view === "labels") catalogue.open(decoded(rest.join("/")));
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // typed by hand
  }
}

function listenForKey() {
  const dialog = find("key-dialog");
  const use = (value) => {
    setApiKey(value);
    dialog.close();
    showKey();
    [told, noticed] = ["", ""];
    look();
    catalogue.search();
    ask.ask();
  };
  find("key-open").addEventListener("click", () => {
    find("key").value = "";
    dialog.showModal();
  });
  find("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    use(find("key").value.trim());
  });
  find("key-forget").addEventListener("click", () => use(""));
  find("key-close").addEventListener("click", () => dialog.close());
}

function showKey() {
  find("key-open").textContent = apiKey() ? "API key: set" : "API key";
}

addEventListener("hashchange", route);
find("language").addEventListener("change", ({ target }) => {
  setLanguage(target.value);
  catalogue.renew();
  ask.ask();
});
listenForKey();
showKey();
route();
look();
