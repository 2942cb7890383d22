// Search: results while one types, chosen by mouse or keyboard, and shown on the map.
const byId = (id) => document.getElementById(id);

export function createSearch(api, explorer, { choose, highlight }) {
  const box = byId("query"), found = byId("found"), list = byId("results");
  let turn = 0, timer = 0, active = -1, rows = [];

  function open(shown) {
    found.hidden = !shown;
    box.setAttribute("aria-expanded", String(shown));
    if (!shown) setActive(-1);
  }
  function setActive(place) {
    const options = [...list.children];
    active = options.length ? Math.max(-1, Math.min(place, options.length - 1)) : -1;
    options.forEach((option, i) => option.setAttribute("aria-selected", String(i === active)));
    if (active >= 0) { box.setAttribute("aria-activedescendant", options[active].id); options[active].scrollIntoView({ block: "nearest" }); }
    else box.removeAttribute("aria-activedescendant");
  }
  function words(node) {
    const { columns } = explorer.summary, text = (key) => nodeView.textOf(columns[key], node[key]);
    return ["class", "prediction", "confidence"].filter((key) => key in node && key in columns).map((key) => (key === "class" ? text(key) : key === "prediction" ? "→ " + text(key) : text(key))).join(" ");
  }
  function add(nodes) {
    for (const node of nodes) {
      const option = document.createElement("div"), name = document.createElement("b"), about = document.createElement("span");
      option.className = "result";
      option.id = "result-" + rows.length;
      option.setAttribute("role", "option");
      option.setAttribute("aria-selected", "false");
      name.textContent = node.name;
      about.textContent = words(node);
      option.append(name, about);
      option.addEventListener("click", () => pick(node.row));
      list.append(option);
      rows.push(node.row);
    }
  }
  function pick(row) {
    open(false);
    choose(row);
    byId("map").focus({ preventScroll: true });
  }
  async function run(offset) {
    const query = box.value.trim(), own = ++turn;
    if (!query) return open(false);
    try {
      const answer = await api.json(`search?q=${encodeURIComponent(query)}&offset=${offset}`);
      if (own !== turn) return;
      if (offset === 0) { list.textContent = ""; rows = []; }
      add(answer.nodes);
      const count = answer.count.toLocaleString("en");
      byId("found-words").textContent = answer.count === 0 ? "No node fits." : answer.count === 1 ? "1 node" : (answer.complete ? "" : "More than ") + count + " nodes";
      byId("more-results").hidden = rows.length >= answer.count;
      byId("highlight").hidden = answer.count === 0;
      if (offset === 0) setActive(answer.nodes.length ? 0 : -1);
    } catch (error) {
      if (own !== turn) return;
      list.textContent = "";
      rows = [];
      byId("found-words").textContent = error.message;
      byId("more-results").hidden = byId("highlight").hidden = true;
    }
    open(true);
  }
  box.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(() => run(0), 120); });
  box.addEventListener("focus", () => { if (rows.length && box.value.trim()) open(true); });
  box.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") { event.preventDefault(); setActive(active + (event.key === "ArrowDown" ? 1 : -1)); }
    else if (event.key === "Escape") { open(false); box.blur(); byId("map").focus({ preventScroll: true }); }
  });
  byId("search").addEventListener("submit", async (event) => {
    event.preventDefault();
    clearTimeout(timer);
    await run(0);
    if (active >= 0) pick(rows[active]);
  });
  byId("more-results").addEventListener("click", () => run(rows.length));
  byId("highlight").addEventListener("click", () => { highlight(box.value.trim()).catch(() => {}); open(false); });
  byId("chip-clear").addEventListener("click", () => highlight(null));
  document.addEventListener("pointerdown", (event) => { if (!byId("search").contains(event.target)) open(false); });
}
