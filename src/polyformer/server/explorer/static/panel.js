// The panel: all about the chosen node, its neighbours, and what would be if it were another.
import { drawBars, drawCurves, drawShares } from "./charts.js";

const byId = (id) => document.getElementById(id);
const MOST_CLASSES = 6;

export function createPanel(api, explorer) {
  const panel = { node: null };
  let changes = { features: {}, add: [], remove: [] }, answer = null, asked = 0;

  const say = (text) => { byId("message").textContent = text; };
  panel.say = say;

  panel.show = (node) => {
    const other = !panel.node || panel.node.row !== node.row;
    panel.node = node;
    byId("node").hidden = false;
    byId("panel-title").textContent = "Node " + node.name;
    if (other) { changes = { features: {}, add: [], remove: [] }; answer = null; byId("what-if-words").textContent = START; }
    drawNeighbours(node.neighbours, true);
    drawFacts();
    drawFeatures();
    drawChanges();
    valueControl();
    panel.draw();
  };

  panel.draw = () => {
    if (!panel.node) return;
    const { summary } = explorer, facts = panel.node.facts;
    byId("panel-words").textContent = nodeView.wordsOf(summary.columns, (key) => facts[key]);
    drawPrediction();
    drawFilter();
  };

  // ---- prediction ----
  function drawPrediction() {
    const { summary } = explorer, now = answer ? answer.after : panel.node, before = answer ? answer.before : null;
    byId("prediction-title").textContent = before && before.prediction !== now.prediction ? "Prediction: " + told(before.prediction) + " → " + told(now.prediction) : "Prediction";
    if (!summary.classes) {
      const text = (value) => (value === null ? "unknown" : value.toPrecision(5));
      return drawShares(byId("probabilities"), [{ name: "value", share: 0, colour: "transparent", text: before ? text(before.prediction) + " → " + text(now.prediction) : text(now.prediction) }]);
    }
    const order = now.probabilities.map((_, i) => i).sort((a, b) => now.probabilities[b] - now.probabilities[a]).slice(0, MOST_CLASSES);
    drawShares(byId("probabilities"), order.map((i) => ({
      name: summary.classes[i], share: now.probabilities[i], before: before ? before.probabilities[i] : undefined,
      colour: summary.palette[i % summary.palette.length], text: now.probabilities[i].toFixed(3), predicted: summary.classes[i] === now.prediction,
    })));
  }
  const told = (prediction) => (typeof prediction === "number" ? prediction.toPrecision(4) : prediction);

  // ---- filter ----
  function drawFilter() {
    const { summary } = explorer, filter = panel.node.filter, section = byId("filter-section");
    section.hidden = !filter;
    byId("coefficients-box").hidden = !filter || !filter.coefficients;
    if (!filter) return;
    const ink = nodeView.colourVariable("--text"), curves = [];
    let band = null;
    if (filter.shared) {
      byId("head-label").hidden = true;
      filter.response.slice(0, 8).forEach((y, i) => curves.push({ name: filter.response.length > 1 ? "filter " + (i + 1) : "all nodes", y, colour: summary.palette[i % summary.palette.length], width: 2.5 }));
    } else {
      const heads = byId("head");
      if (!heads.options.length) nodeView.headOptions(heads, filter.coefficients.length);
      const head = Number(heads.value), now = answer ? answer.after : panel.node;
      const kind = answer && answer.after.kind !== undefined ? answer.after.kind : nodeView.valueOf(summary.columns.cluster || { labels: [] }, panel.node.facts.cluster);
      if (summary.kinds && kind !== null && kind !== undefined) {
        const colour = summary.palette[kind % summary.palette.length], mean = summary.kinds.mean[kind][head], spread = summary.kinds.spread[kind][head];
        band = { low: mean.map((m, l) => m - spread[l]), high: mean.map((m, l) => m + spread[l]), colour };
        curves.push({ name: summary.kinds.names[kind], y: mean, colour, dash: true });
      }
      if (answer) curves.push({ name: "as it is", y: response(panel.node.filter, head), colour: nodeView.colourVariable("--soft"), dash: true });
      curves.push({ name: answer ? "what if" : "this node", y: response(now.filter, head), colour: answer ? nodeView.colourVariable("--warn") : ink, width: 2.5 });
      const alpha = coefficients(now.filter, head);
      drawBars(byId("node-coefficients"), "Coefficients of the node", alpha, summary.palette[0]);
      byId("coefficients-text").textContent = nodeView.coefficientWords(alpha);
    }
    drawCurves(byId("node-filter"), "Filter of the node beside the mean of its kind", summary.frequencies, curves, band);
    byId("filter-words").textContent = filterWords(filter);
  }
  function filterWords(filter) {
    const { summary } = explorer;
    const whose = filter.shared ? "All nodes share this filter." : summary.kinds ? "The node's filter beside the mean of its kind, with one standard deviation." : "The node's filter; kinds of filters are still being found.";
    return whose + " Left: what it shares with its neighbours; right: how it differs from them." + (summary.filter.exact ? "" : " Residual and normalisation are left out.");
  }
  const coefficients = (filter, head) => (head > 0 ? filter.coefficients[head - 1] : filter.coefficients[0].map((_, k) => filter.coefficients.reduce((sum, row) => sum + row[k], 0) / filter.coefficients.length));
  const response = (filter, head) => nodeView.responseOf(coefficients(filter, head), explorer.summary.tokens);
  byId("head").addEventListener("change", drawFilter);

  // ---- neighbours ----
  panel.neighbours = { rows: [], names: [], count: 0 };
  function drawNeighbours(part, anew) {
    const place = byId("panel-neighbours"), known = panel.neighbours;
    if (anew) { place.textContent = ""; known.rows = []; known.names = []; }
    part.rows.forEach((row, i) => {
      const name = part.names[i], group = document.createElement("span"), go = document.createElement("button"), drop = document.createElement("button");
      group.className = "neighbour";
      go.type = drop.type = "button";
      const dot = document.createElement("i");
      dot.style.background = explorer.colourOf(row);
      dot.dataset.row = row;
      go.append(dot, String(name));
      go.addEventListener("click", () => explorer.choose(row));
      drop.textContent = "×";
      drop.setAttribute("aria-label", "What if there were no edge to " + name);
      drop.title = "What if there were no edge to " + name + "?";
      drop.addEventListener("click", () => { if (!changes.remove.includes(name)) changes.remove.push(name); ask(); });
      group.append(go, drop);
      place.append(group);
    });
    known.rows.push(...part.rows);
    known.names.push(...part.names);
    known.count = part.count;
    byId("panel-neighbours-title").textContent = nodeView.neighboursTitle(known.rows.length, part.count);
    byId("more-neighbours").hidden = known.rows.length >= part.count;
  }
  byId("more-neighbours").addEventListener("click", async () => {
    const node = panel.node, part = await api.json(`nodes/${node.row}/neighbours?offset=${panel.neighbours.rows.length}`);
    if (panel.node === node) drawNeighbours(part, false);
  });
  // Arrow keys go from neighbour to neighbour in the list.
  byId("panel-neighbours").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const buttons = [...document.querySelectorAll(".neighbour button:first-child")], next = buttons[buttons.indexOf(document.activeElement) + step];
    if (next) { event.preventDefault(); next.focus(); }
  });
  panel.recolour = () => { for (const dot of document.querySelectorAll(".neighbour i")) dot.style.background = explorer.colourOf(Number(dot.dataset.row)); };

  // ---- facts and features ----
  function fill(place, entries) {
    place.textContent = "";
    for (const [key, title, text] of entries) {
      const row = document.createElement("div"), term = document.createElement("dt"), value = document.createElement("dd");
      row.dataset.fact = key;
      term.textContent = title;
      value.textContent = text;
      row.append(term, value);
      place.append(row);
    }
  }
  function drawFacts() {
    const { summary } = explorer, facts = panel.node.facts;
    const keys = Object.keys(summary.columns).filter((key) => !/^(alpha\d+$|p:)/.test(key) && key in facts);
    fill(byId("panel-facts"), keys.map((key) => [key, summary.columns[key].title, nodeView.textOf(summary.columns[key], facts[key])]));
  }
  const day = (value) => new Date(value * 86400000).toISOString().slice(0, 10);
  function featureText(field, value) {
    if (value === null || value === undefined) return "missing";
    if (typeof value === "string") return value;
    return field && field.date ? day(value) : String(Number(value.toPrecision(7)));
  }
  function drawFeatures() {
    const { features } = panel.node;
    byId("features-box").hidden = !Object.keys(features).length;
    byId("features-box").querySelector("summary").textContent = panel.node.all_features ? "Features" : "Features that are not zero";
    fill(byId("panel-features"), Object.entries(features).map(([name, value]) => [name, name, featureText(explorer.fields.get(name), value)]));
  }

  // ---- what if ----
  const START = "Nothing is stored: the graph stays as it is. An edge is dropped with × beside a neighbour.";
  function drawChanges() {
    const place = byId("changes");
    place.textContent = "";
    const entry = (text, drop) => {
      const item = document.createElement("li"), button = document.createElement("button");
      button.type = "button";
      button.textContent = "×";
      button.setAttribute("aria-label", "Take back: " + text);
      button.addEventListener("click", () => { drop(); ask(); });
      item.append(text, button);
      place.append(item);
    };
    for (const [name, value] of Object.entries(changes.features)) entry(name + " = " + featureText(explorer.fields.get(name), value), () => { delete changes.features[name]; });
    for (const name of changes.add) entry("edge to " + name, () => { changes.add = changes.add.filter((other) => other !== name); });
    for (const name of changes.remove) entry("no edge to " + name, () => { changes.remove = changes.remove.filter((other) => other !== name); });
  }
  async function ask() {
    const node = panel.node, turn = ++asked, words = byId("what-if-words");
    drawChanges();
    if (!Object.keys(changes.features).length && !changes.add.length && !changes.remove.length) {
      answer = null;
      words.textContent = START;
      return panel.draw();
    }
    words.textContent = "Asking the model …";
    try {
      const given = await api.post("what-if", { id: node.name, features: changes.features, add_edges: changes.add, remove_edges: changes.remove });
      if (turn !== asked || panel.node !== node) return;
      answer = given;
      words.textContent = whatIfWords(given);
    } catch (error) {
      if (turn !== asked || panel.node !== node) return;
      answer = null;
      words.textContent = error.message;
    }
    panel.draw();
  }
  function whatIfWords({ before, after }) {
    if (typeof after.prediction === "number") return `The prediction goes from ${told(before.prediction)} to ${told(after.prediction)}.`;
    const { classes } = explorer.summary, at = classes.indexOf(after.prediction), was = classes.indexOf(before.prediction);
    const kinds = before.kind !== undefined && before.kind !== after.kind ? ` The filter goes from kind ${before.kind + 1} to kind ${after.kind + 1}.` : "";
    if (at !== was) return `The prediction goes from ${before.prediction} (${before.probabilities[was].toFixed(3)}) to ${after.prediction} (${after.probabilities[at].toFixed(3)}).` + kinds;
    return `Still ${after.prediction}: its probability goes from ${before.probabilities[at].toFixed(3)} to ${after.probabilities[at].toFixed(3)}.` + kinds;
  }
  let offered = null, offeredTo = null;
  function valueControl() {
    const field = explorer.fields.get(byId("feature-name").value), place = byId("feature-place");
    if (field === offered && panel.node === offeredTo) return; // it may be in use
    offered = field;
    offeredTo = panel.node;
    const tag = field && field.categories.length ? "select" : "input", old = byId("feature-value");
    const control = document.createElement(tag);
    control.id = "feature-value";
    control.setAttribute("aria-label", "Value");
    if (tag === "select") {
      if (field.optional) control.add(new Option("missing", ""));
      for (const name of field.categories) control.add(new Option(name, name));
    } else if (field && field.date) control.type = "date";
    else { control.inputMode = "decimal"; control.autocomplete = "off"; control.placeholder = "value"; }
    const value = field && panel.node ? panel.node.features[field.name] ?? (panel.node.all_features ? null : 0) : null;
    if (value !== null && value !== undefined) control.value = field.date ? day(value) : typeof value === "string" ? value : String(Number(value.toPrecision(7)));
    else if (tag === "input" && old.tagName === "INPUT" && !field) control.value = old.value;
    place.replaceChildren(control);
  }
  byId("feature-name").addEventListener("input", valueControl);
  byId("feature-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const name = byId("feature-name").value, field = explorer.fields.get(name), text = byId("feature-value").value.trim(), words = byId("what-if-words");
    if (!field) { words.textContent = name ? "There is no feature “" + name + "”." : "Name a feature first."; return; }
    if (text === "" && !field.optional) { words.textContent = "Type a value first."; return; }
    const number = Number(text.replace(",", "."));
    changes.features[name] = text === "" ? null : field.categories.length || field.date || Number.isNaN(number) ? text : number;
    ask();
  });
  byId("edge-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = byId("edge-to").value.trim(), words = byId("what-if-words");
    if (!text) { words.textContent = "Type the id of a node first."; return; }
    const name = typeof panel.node.name === "number" && /^-?\d{1,15}$/.test(text) ? Number(text) : text;
    if (!changes.add.includes(name)) changes.add.push(name);
    byId("edge-to").value = "";
    ask();
  });
  panel.tried = () => answer;
  return panel;
}
