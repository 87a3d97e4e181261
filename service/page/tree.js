// The vocabulary as a tree that is read level by level, walked with the keyboard (WAI-ARIA tree view).
import { narrower } from "./api.js";
import { count, element } from "./dom.js";
import { showProblem } from "./problems.js";

const PAGE = 200;

export class Tree {
  /** `onChoose` is called with the id of a label. */
  constructor(root, onChoose) {
    this.root = root;
    this.onChoose = onChoose;
    root.addEventListener("keydown", (event) => this.onKey(event));
  }

  /** Read the top of the vocabulary. */
  async open() {
    const list = element("ul", { aria: { label: "Labels by level" } });
    list.setAttribute("role", "tree");
    this.root.replaceChildren(list);
    await this.fill(list, "");
    const first = list.querySelector("[role=treeitem]");
    if (first) first.tabIndex = 0;
  }

  async fill(list, id, offset = 0) {
    try {
      const { labels, total } = await narrower(id, offset, PAGE);
      list.querySelector(":scope > .more")?.remove();
      list.append(...labels.map((label) => this.item(label)));
      const left = total - offset - labels.length;
      if (left > 0) {
        const more = element("button", { type: "button", class: "quiet" }, `${count(left)} more`);
        more.addEventListener("click", () => this.fill(list, id, offset + PAGE));
        list.append(element("li", { class: "more", role: "none" }, more));
      }
    } catch (error) {
      const box = element("div", { class: "problem", role: "alert" });
      list.replaceChildren(element("li", { role: "none" }, box));
      showProblem(box, error, () => this.fill(list, id, offset));
    }
  }

  item(label) {
    const item = element("li", { tabIndex: -1, data: { id: label.id } });
    item.setAttribute("role", "treeitem");
    const hasMore = label.narrower_count > 0;
    const sign = element("span", { class: "sign", aria: { hidden: "true" } }, hasMore ? "▸" : "");
    const name = element("a", { href: `#labels/${encodeURIComponent(label.id)}`, tabIndex: -1 }, label.name);
    const size = hasMore ? element("span", { class: "count" }, ` ${count(label.narrower_count)}`) : null;
    item.append(element("span", { class: "node" }, sign, name, size));
    if (hasMore) {
      item.setAttribute("aria-expanded", "false");
      sign.addEventListener("click", () => this.toggle(item));
    }
    return item;
  }

  async toggle(item) {
    const isOpen = item.getAttribute("aria-expanded") === "true";
    item.setAttribute("aria-expanded", `${!isOpen}`);
    item.querySelector(".sign").textContent = isOpen ? "▸" : "▾";
    if (isOpen) {
      item.querySelector(":scope > ul")?.remove();
      return;
    }
    const list = element("ul");
    list.setAttribute("role", "group");
    item.append(list);
    await this.fill(list, item.dataset.id);
  }

  onKey(event) {
    const item = event.target.closest("[role=treeitem]");
    if (!item) return;
    const all = [...this.root.querySelectorAll("[role=treeitem]")];
    const at = all.indexOf(item);
    const isOpen = item.getAttribute("aria-expanded") === "true";
    const steps = {
      ArrowDown: () => this.focus(all[at + 1]),
      ArrowUp: () => this.focus(all[at - 1]),
      Home: () => this.focus(all[0]),
      End: () => this.focus(all.at(-1)),
      ArrowRight: () => (isOpen ? this.focus(item.querySelector("[role=treeitem]")) : item.hasAttribute("aria-expanded") && this.toggle(item)),
      ArrowLeft: () => (isOpen ? this.toggle(item) : this.focus(item.parentElement.closest("[role=treeitem]"))),
      Enter: () => this.onChoose(item.dataset.id),
    };
    if (!(event.key in steps)) return;
    event.preventDefault();
    steps[event.key]();
  }

  focus(item) {
    if (!item) return;
    for (const other of this.root.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
    item.tabIndex = 0;
    item.focus();
  }
}
