// Light or dark, set before anything is painted. A plain script, because modules wait.
(() => {
  const KEY = "longtail-theme";
  const CHOICES = {
    auto: ["◐", "Colours: as the system"],
    light: ["☀", "Colours: light"],
    dark: ["☾", "Colours: dark"],
  };

  function stored() {
    try {
      const choice = localStorage.getItem(KEY);
      return choice in CHOICES ? choice : "auto";
    } catch {
      return "auto"; // storage is switched off
    }
  }

  function apply(choice) {
    document.documentElement.dataset.theme = choice;
    const button = document.getElementById("theme");
    if (!button) return;
    const [sign, words] = CHOICES[choice];
    document.getElementById("theme-sign").textContent = sign;
    button.setAttribute("aria-label", words);
    button.title = words;
  }

  apply(stored());
  document.addEventListener("DOMContentLoaded", () => {
    apply(stored());
    document.getElementById("theme").addEventListener("click", () => {
      const names = Object.keys(CHOICES);
      const next = names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length];
      apply(next);
      try {
        localStorage.setItem(KEY, next);
      } catch {
        // It holds for this page then.
      }
    });
  });
})();
