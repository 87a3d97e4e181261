// Live load, from the metrics that operators see too.
import { metrics } from "./api.js";
import { count, element } from "./dom.js";
import { hideProblem, showProblem } from "./problems.js";

const EVERY_MS = 2000;
const POINTS = 30;
const NOT_WORK = new Set(["none", "/", "/page/{name}", "/metrics", "/livez", "/readyz", "/v1/models", "/v2/health/live", "/v2/health/ready"]);
const SVG = "http://www.w3.org/2000/svg";

/** What the tiles show: a name, the unit, and how to get the value from a sample and the last one. */
const TILES = [
  ["Waiting", "tokens", (now) => now.queueTokens],
  ["Requests", "a second", (now, last) => (now.requests - last.requests) / (now.seconds - last.seconds)],
  ["Time of an answer", "ms, mean", (now, last) => ratio(now.answerSeconds - last.answerSeconds, now.answers - last.answers, 1000)],
  ["Computed together", "texts, mean", (now, last) => ratio(now.batchTexts - last.batchTexts, now.batches - last.batches)],
  ["Refused for load", "since the start", (now) => now.refused],
  ["Memory", "MB", (now) => now.memory / 1e6],
];

export class LoadTiles {
  constructor(container, problem) {
    this.problem = problem;
    this.maxQueueTokens = null;
    this.last = null;
    this.tiles = TILES.map(([name, unit, value]) => new Tile(name, unit, value));
    container.append(...this.tiles.map((tile) => tile.root));
  }

  start() {
    if (this.timer) return;
    this.timer = setInterval(() => this.look(), EVERY_MS);
    this.look();
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.last = null;
  }

  async look() {
    if (document.hidden || this.isLooking) return;
    this.isLooking = true;
    try {
      const now = sampleOf(await metrics());
      hideProblem(this.problem);
      if (this.maxQueueTokens) this.tiles[0].setUnit(`of ${count(this.maxQueueTokens)} tokens`);
      for (const tile of this.tiles) tile.show(now, this.last);
      this.last = now;
    } catch (error) {
      showProblem(this.problem, error);
    } finally {
      this.isLooking = false;
    }
  }
}

class Tile {
  constructor(name, unit, valueOf) {
    this.valueOf = valueOf;
    this.points = [];
    this.value = element("strong", {}, "–");
    this.unit = element("span", { class: "muted" }, unit);
    this.line = document.createElementNS(SVG, "polyline");
    const chart = document.createElementNS(SVG, "svg");
    chart.setAttribute("viewBox", `0 0 ${POINTS - 1} 20`);
    chart.setAttribute("preserveAspectRatio", "none");
    chart.setAttribute("aria-hidden", "true");
    chart.append(this.line);
    this.root = element("div", { class: "card tile" }, element("span", {}, name), element("p", {}, this.value, " ", this.unit), chart);
  }

  setUnit(unit) {
    this.unit.textContent = unit;
  }

  show(now, last) {
    const value = last || this.valueOf.length === 1 ? this.valueOf(now, last) : null;
    this.value.textContent = value === null ? "–" : count(value >= 10 ? Math.round(value) : Math.round(value * 10) / 10);
    this.points = [...this.points, value ?? 0].slice(-POINTS);
    const most = Math.max(...this.points, 1e-9);
    const first = POINTS - this.points.length;
    this.line.setAttribute("points", this.points.map((y, index) => `${first + index},${(19 - (18 * y) / most).toFixed(1)}`).join(" "));
  }
}

function sampleOf(found) {
  const sum = (name, accepts = () => true) =>
    found.reduce((total, [each, labels, value]) => total + (each === name && accepts(labels) ? value : 0), 0);
  const isPredict = ({ route }) => route === "/v1/predict";
  const http = "longtail_http_request_duration_seconds";
  return {
    seconds: performance.now() / 1000,
    queueTokens: sum("longtail_queue_tokens"),
    requests: sum(`${http}_count`, ({ route }) => !NOT_WORK.has(route)),
    answers: sum(`${http}_count`, isPredict),
    answerSeconds: sum(`${http}_sum`, isPredict),
    batches: sum("longtail_batch_texts_count"),
    batchTexts: sum("longtail_batch_texts_sum"),
    refused: sum("longtail_problems_total", ({ reason }) => reason === "overloaded"),
    memory: sum("process_resident_memory_bytes"),
  };
}

const ratio = (above, below, factor = 1) => (below > 0 ? (factor * above) / below : null);
