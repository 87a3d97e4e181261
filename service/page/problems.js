// Problems in words, with what can be done about them.
import { element, plural } from "./dom.js";

/** Show a problem in a box; `again` is called by the button that offers to try again. */
export function showProblem(box, problem, again) {
  const parts = [element("strong", {}, problem.title)];
  if (problem.status === 401) {
    parts.push(element("p", {}, "This service wants an API key."), keyButton());
  } else {
    if (problem.detail) parts.push(element("p", {}, problem.detail));
    if (problem.errors?.length > 1) {
      const lines = problem.errors.map((each) => element("li", {}, `${each.pointer}: ${each.detail}`));
      parts.push(element("ul", {}, ...lines));
    }
    if (again && mayHelp(problem)) parts.push(againButton(problem, again));
  }
  box.replaceChildren(...parts);
  box.hidden = false;
}

export function hideProblem(box) {
  box.hidden = true;
  box.replaceChildren();
}

/** Asking the same again may help: nothing is wrong with the request. */
const mayHelp = ({ status }) => status === 0 || status === 429 || status >= 500;

function keyButton() {
  const button = element("button", { type: "button" }, "Enter a key");
  button.addEventListener("click", () => document.getElementById("key-open").click());
  return button;
}

function againButton(problem, again) {
  const button = element("button", { type: "button" });
  button.addEventListener("click", again);
  let left = Math.ceil(problem.retryAfter ?? 0);
  const tick = () => {
    button.disabled = left > 0;
    button.textContent = left > 0 ? `Try again in ${plural(left, "second")}` : "Try again";
    if (left-- > 0) setTimeout(tick, 1000);
  };
  tick();
  return button;
}
