// The live explorer: asks the server for the graph, its nodes and its columns, and joins map, panel and search.
import { createMap } from "./map.js";
import { createPanel } from "./panel.js";
import { createSearch } from "./search.js";

const byId = (id) => document.getElementById(id);
const MOST_FEATURE_OPTIONS = 200;

// ---- the server ----
const kept = { get: () => { try { return sessionStorage.getItem("polyformer-token"); } catch { return null; } }, set: (token) => { try { sessionStorage.setItem("polyformer-token", token); } catch { /* asked again next time */ } } };
let token = kept.get();
function askToken() {
  const dialog = byId("ask-token");
  return new Promise((done) => {
    byId("token-form").addEventListener("submit", () => { token = byId("token").value; kept.set(token); done(); }, { once: true });
    dialog.addEventListener("cancel", (event) => event.preventDefault(), { once: true });
    if (!dialog.open) dialog.showModal();
  });
}
async function request(path, options = {}) {
  const headers = { ...options.headers, ...(token ? { Authorization: "Bearer " + token } : {}) };
  let response;
  try {
    response = await fetch("explorer/data/" + path, { ...options, headers });
  } catch {
    throw new Error("The server does not answer. Is it still running?");
  }
  if (response.status === 401) { await askToken(); return request(path, options); }
  if (!response.ok) {
    const { error } = await response.json().catch(() => ({ error: "The server answered with status " + response.status + "." }));
    throw new Error(error);
  }
  return response;
}
const api = {
  json: async (path) => (await request(path)).json(),
  bytes: async (path) => (await request(path)).arrayBuffer(),
  post: async (path, body) => (await request(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) })).json(),
};

// ---- state ----
const explorer = { summary: null, fields: new Map(), colouring: "", column: null, mask: null, chosen: -1, columns: new Map() };
const history = [];
const map = createMap(byId("map"));
const panel = createPanel(api, explorer);
byId("no-webgl").hidden = map !== null;

const rgb = (text) => {
  if (text.startsWith("#")) return [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
  return text.match(/\d+/g).slice(0, 3).map(Number);
};
const unknown = () => nodeView.colourVariable("--line");
explorer.colourOf = (row) => (explorer.column && row < explorer.column.values.length ? nodeView.colourAt(explorer.column, explorer.column.values[row], explorer.summary.palette, unknown()) : unknown());

function drawColours() {
  const { column, summary } = explorer;
  if (!column) return;
  nodeView.drawLegend(byId("legend"), column, summary.palette, unknown());
  panel.recolour();
  if (!map || !map.count) return;
  const table = new Uint8Array(3 * 65536), shares = column.labels ? null : (column.shares = column.shares || nodeView.sharesOf(column));
  const colours = column.labels ? nodeView.coloursOf(column, summary.palette).map(rgb) : null;
  const used = column.labels ? column.labels.length : 65535;
  for (let raw = 0; raw < used; raw++) table.set(colours ? colours[raw % colours.length] : nodeView.rampColour(shares[raw]), 3 * raw);
  table.set(rgb(unknown()), 3 * nodeView.MISSING);
  map.setColours(column.values, table, rgb(nodeView.colourVariable("--card")), explorer.mask);
  byId("map").setAttribute("aria-label", "Map of nodes, coloured by " + column.title);
}

async function colourBy(key) {
  explorer.colouring = key;
  try {
    const buffer = await api.bytes("column?key=" + encodeURIComponent(key)), length = new DataView(buffer).getUint32(0, true);
    if (explorer.colouring !== key) return;
    const column = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
    column.values = new Uint16Array(buffer, 4 + length);
    explorer.column = column;
    drawColours();
  } catch (error) { panel.say(error.message); }
}

// ---- the choice of colours ----
const GROUPS = { "The model": (key) => /^(prediction|correct|confidence|error|cluster|p:)/.test(key), "Its filters": (key) => /^(low|band|high|order|alpha)/.test(key), "The graph": () => true };
function fillColours() {
  const select = byId("colour"), { summary } = explorer, left = new Set(Object.keys(summary.columns));
  select.textContent = "";
  for (const [title, belongs] of Object.entries(GROUPS)) {
    const keys = [...left].filter(belongs);
    keys.forEach((key) => left.delete(key));
    if (keys.length) addGroup(select, title, keys.map((key) => [summary.columns[key].title, key]));
  }
  const names = summary.features.map((field) => field.name), wide = names.length > MOST_FEATURE_OPTIONS;
  if (wide) addGroup(select, "Features", [["a feature by name …", "feature:"]]);
  else if (names.length) addGroup(select, "Features", names.map((name) => [/^\d+$/.test(name) ? "feature " + name : name, "feature:" + name]));
  if ([...select.options].some((option) => option.value === explorer.colouring)) select.value = explorer.colouring;
}
function addGroup(select, title, entries) {
  const group = document.createElement("optgroup");
  group.label = title;
  for (const [text, key] of entries) group.append(new Option(text, key));
  select.append(group);
}
byId("colour").addEventListener("change", (event) => {
  const key = event.target.value;
  byId("feature-label").hidden = key !== "feature:";
  if (key === "feature:") byId("feature-key").focus();
  else colourBy(key);
});
byId("feature-key").addEventListener("change", (event) => colourBy("feature:" + event.target.value));

// ---- the chosen node ----
const pixels = (name, opacity) => [...rgb(nodeView.colourVariable(name)), Math.round(255 * opacity)];
let turn = 0;
async function choose(row, { remember = true, centre = false } = {}) {
  const own = ++turn;
  try {
    const [node, edges] = await Promise.all([api.json("nodes/" + row), map ? api.bytes("nodes/" + row + "/around") : null]);
    if (own !== turn) return;
    if (remember && explorer.chosen >= 0 && explorer.chosen !== row) history.push(explorer.chosen);
    byId("back").disabled = !history.length;
    explorer.chosen = row;
    explorer.edges = edges && new Uint32Array(edges);
    panel.say("");
    panel.show(node);
    window.history.replaceState(null, "", "#node=" + encodeURIComponent(node.name));
    drawChoice();
    if (map) { if (centre && map.view.zoom > 1) map.centre(row); else map.keepInView(row); }
  } catch (error) { panel.say(error.message); }
}
explorer.choose = choose;
function drawChoice() {
  if (!map || explorer.chosen < 0 || !panel.node || !explorer.edges) return;
  const around = panel.neighbours.rows;
  map.setEdges(explorer.edges, panel.node.neighbours.count, pixels("--accent", 0.9), pixels("--soft", 0.3));
  map.setMarks([...around, explorer.chosen], [...around.map(() => pixels("--accent", 1)), pixels("--text", 1)]);
}
function goBack() {
  if (history.length) choose(history.pop(), { remember: false });
}
byId("back").addEventListener("click", goBack);

// ---- the map ----
const WALK = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
function walk([right, down]) {
  const [x, y] = map.screen(explorer.chosen);
  let best = -1, least = Infinity;
  for (const row of panel.neighbours.rows) {
    if (row >= map.count) continue;
    const [nx, ny] = map.screen(row), ahead = (nx - x) * right + (ny - y) * down, aside = Math.abs((nx - x) * down) + Math.abs((ny - y) * right);
    if (ahead <= 0.01 || aside > 1.75 * ahead) continue; // within 60 degrees
    if (ahead + 2 * aside < least) { least = ahead + 2 * aside; best = row; }
  }
  if (best >= 0) choose(best);
  else panel.say("There is no neighbour in this direction.");
}
if (map) {
  map.onClick = (x, y) => { const row = map.nearest(x, y, 24); if (row >= 0) choose(row); };
  byId("map").addEventListener("keydown", (event) => {
    const direction = WALK[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (direction && event.shiftKey) map.move(-60 * direction[0], -60 * direction[1]);
    else if (direction && explorer.chosen >= 0) walk(direction);
    else if (event.key === "+" || event.key === "=") map.zoomAt(1.6);
    else if (event.key === "-") map.zoomAt(1 / 1.6);
    else if (event.key === "0") map.reset();
    else if (event.key === "c" && explorer.chosen >= 0) map.centre(explorer.chosen);
    else if (event.key === "Backspace") goBack();
    else return;
    event.preventDefault();
  });
  const around = () => (explorer.chosen >= 0 ? map.screen(explorer.chosen) : []);
  byId("zoom-in").addEventListener("click", () => map.zoomAt(1.6, ...around()));
  byId("zoom-out").addEventListener("click", () => map.zoomAt(1 / 1.6));
  byId("zoom-reset").addEventListener("click", map.reset);
  new ResizeObserver(map.resize).observe(byId("map"));
}
document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === "/" && !typing) { event.preventDefault(); byId("query").focus(); byId("query").select(); }
  if (event.key === "?" && !typing) byId("help").showModal();
});
byId("help-open").addEventListener("click", () => byId("help").showModal());

// ---- search ----
createSearch(api, explorer, {
  choose: (row) => { choose(row, { centre: true }); },
  highlight: async (query) => {
    explorer.mask = query === null ? null : new Uint8Array(await api.bytes("matches?q=" + encodeURIComponent(query)));
    byId("chip").hidden = query === null;
    byId("chip-words").textContent = query === null ? "" : "Only “" + query + "” is lit.";
    drawColours();
  },
});

// ---- opening, and what becomes known later ----
async function takeSummary() {
  const summary = await api.json("summary"), before = explorer.summary;
  explorer.summary = summary;
  if (!before) {
    document.title = summary.name + " · polyformer explorer";
    byId("title").textContent = summary.model + " on " + summary.name;
    explorer.fields = new Map(summary.features.map((field) => [field.name, field]));
    const list = byId("feature-names");
    for (const { name } of summary.features.slice(0, 1000)) list.append(new Option(name, name));
    byId("feature-form").hidden = !summary.settable || !summary.features.length;
  }
  const version = summary.current > summary.version ? `, map of version ${summary.version}, graph of version ${summary.current}` : "";
  byId("subtitle").textContent = `${summary.nodes.toLocaleString("en")} nodes, ${summary.edges.toLocaleString("en")} edges${version}`;
  const changed = !before || Object.keys(before.columns).length !== Object.keys(summary.columns).length || before.version !== summary.version;
  if (map && summary.mapped && (!map.count || before.version !== summary.version)) {
    map.setPlaces(new Uint16Array(await api.bytes("places")), summary.grid);
    drawColours();
    drawChoice();
    if (explorer.chosen >= 0) map.keepInView(explorer.chosen);
  }
  if (changed) {
    fillColours();
    const wanted = before && explorer.touched ? explorer.colouring : ["cluster", "prediction", "class"].find((key) => key in summary.columns);
    if (wanted !== explorer.colouring || (before && before.version !== summary.version)) await colourBy(wanted);
    byId("colour").value = explorer.colouring;
  }
  if (changed && before && explorer.chosen >= 0) choose(explorer.chosen, { remember: false });
  tellProgress(summary);
  return summary;
}
byId("colour").addEventListener("change", () => { explorer.touched = true; });
function tellProgress(summary) {
  const place = byId("pending"), parts = Object.entries(summary.progress);
  const words = { map: "Drawing the map", predictions: "Asking the model about all nodes" };
  place.hidden = !parts.length && !summary.failure;
  const [name, share] = parts[0] || [];
  place.textContent = summary.failure || (parts.length ? `${words[name]}: ${Math.floor(100 * share)} %` : "");
}
async function keepUp() {
  try {
    const summary = await takeSummary();
    const busy = Object.keys(summary.progress).length > 0 || summary.current > summary.version;
    setTimeout(keepUp, busy ? 1000 : 15000);
  } catch (error) {
    panel.say(error.message);
    setTimeout(keepUp, 5000);
  }
}
async function start() {
  nodeView.theme(byId("theme"), () => { drawColours(); drawChoice(); panel.draw(); });
  await keepUp();
  const wanted = decodeURIComponent((window.location.hash.match(/^#node=(.*)$/) || ["", ""])[1]);
  if (wanted) {
    try {
      return choose((await api.json("row?id=" + encodeURIComponent(wanted))).row, { centre: true });
    } catch (error) { panel.say(error.message); }
  }
  if (explorer.summary && explorer.chosen < 0) {
    const words = byId("message").textContent;
    await choose(explorer.summary.first);
    panel.say(words);
  }
}
window.explorer = { map, panel, state: explorer, choose };
start();
