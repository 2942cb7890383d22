"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const figures = JSON.parse(byId("figures").textContent);
  const data = JSON.parse(byId("nodes").textContent);
  const root = document.documentElement;
  const config = { displayModeBar: false, responsive: true };

  // ---- theme and charts ----
  const colourOf = nodeView.colourVariable;
  function dressed(layout) {
    const axis = { color: colourOf("--text"), gridcolor: colourOf("--grid"), zerolinecolor: colourOf("--line"), linecolor: colourOf("--line") };
    const result = { ...layout, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colourOf("--text"), family: "system-ui, sans-serif", size: 13 } };
    for (const key of ["xaxis", "yaxis", "yaxis2"]) if (result[key]) result[key] = { ...result[key], ...axis };
    if (result.yaxis2) result.yaxis2.showgrid = false;
    return result;
  }
  function drawCharts() {
    for (const [name, figure] of Object.entries(figures)) Plotly.react("chart-" + name, figure.data, dressed(figure.layout), config);
  }
  nodeView.theme(byId("theme"), () => {
    drawCharts();
    if (data) { drawMap(); drawLegend(); drawNodeCharts(); }
  });
  if (!data) { drawCharts(); return; }

  // ---- data of the nodes ----
  const MISSING = nodeView.MISSING;
  function unpack(text, Kind) {
    const raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return new Kind(bytes.buffer);
  }
  const count = data.count, places = unpack(data.places, Uint16Array);
  const numbers = data.nodes === null ? null : unpack(data.nodes, Uint32Array);
  const numberOf = (i) => (numbers === null ? i : numbers[i]);
  const nameOf = (i) => (data.ids === null ? String(numberOf(i)) : data.ids[i]);
  const rowByNumber = new Map(), rowByName = new Map();
  for (let i = 0; i < count; i++) { rowByNumber.set(numberOf(i), i); rowByName.set(nameOf(i), i); }
  const columns = data.columns;
  for (const column of Object.values(columns)) column.values = unpack(column.values, Uint16Array);
  const around = { counts: unpack(data.neighbours.counts, Uint8Array), nodes: unpack(data.neighbours.nodes, data.neighbours.width === "Uint16Array" ? Uint16Array : Uint32Array), starts: new Uint32Array(count) };
  for (let i = 1; i < count; i++) around.starts[i] = around.starts[i - 1] + around.counts[i - 1];
  const filters = data.filters;
  if (filters) {
    filters.layers = [filters, ...filters.later];
    for (const layer of filters.layers) layer.alpha = unpack(layer.coefficients, Int16Array);
    for (let k = 0; k < filters.orders; k++) columns["alpha" + k] = coefficientColumn(k);
  }
  // To colour by; the chosen node's coefficients have a chart of their own, so they are not among its facts.
  function coefficientColumn(k) {
    const { heads, orders, step, alpha } = filters, raw = new Float64Array(count);
    for (let i = 0; i < count; i++) for (let h = 0; h < heads; h++) raw[i] += (alpha[(i * heads + h) * orders + k] * step) / heads;
    const least = raw.reduce((a, b) => Math.min(a, b), Infinity), most = raw.reduce((a, b) => Math.max(a, b), -Infinity);
    const size = (most - least) / (MISSING - 1) || 1;
    return { title: "coefficient α_" + k + (heads > 1 ? ", mean of heads" : ""), least, most, step: size, digits: 3, chart: true, values: Uint16Array.from(raw, (value) => Math.round((value - least) / size)) };
  }

  const valueOf = (column, i) => nodeView.valueOf(column, column.values[i]);
  const textOf = (column, i) => nodeView.textOf(column, column.values[i]);

  // ---- the map ----
  const canvas = byId("map"), pen = canvas.getContext("2d");
  const view = { zoom: 1, x: 0.5, y: 0.5 };
  let chosen = -1, colouring = Object.keys(columns)[0], width = 0, height = 0;
  const colourAt = (column, i) => nodeView.colourAt(column, column.values[i], data.palette, colourOf("--line"));
  function resize() {
    width = canvas.clientWidth;
    height = Math.round(width / Math.min(Math.max(data.aspect || 1.15, 0.7), 2.5));
    const ratio = window.devicePixelRatio || 1;
    canvas.style.height = height + "px";
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    drawMap();
  }
  const screenX = (i) => (places[2 * i] / MISSING - view.x) * view.zoom * width + width / 2;
  const screenY = (i) => (places[2 * i + 1] / MISSING - view.y) * view.zoom * height + height / 2;
  function drawMap() {
    pen.clearRect(0, 0, width, height);
    const column = columns[colouring], grid = data.aspect !== null;
    const side = Math.sqrt((width * height) / data.total) * view.zoom;
    const size = grid ? Math.max(side * 0.92, 1.5) : Math.min(Math.max(side * 0.35, 3), 9);
    const groups = new Map();
    for (let i = 0; i < count; i++) {
      const colour = colourAtCached(column, i);
      if (!groups.has(colour)) groups.set(colour, []);
      groups.get(colour).push(i);
    }
    for (const [colour, rows] of groups) {
      pen.fillStyle = colour;
      for (const i of rows) pen.fillRect(screenX(i) - size / 2, screenY(i) - size / 2, size, size);
    }
    if (chosen >= 0) {
      const mark = size / 2 + 3;
      pen.lineWidth = 4; pen.strokeStyle = colourOf("--back");
      pen.strokeRect(screenX(chosen) - mark, screenY(chosen) - mark, 2 * mark, 2 * mark);
      pen.lineWidth = 2; pen.strokeStyle = colourOf("--text");
      pen.strokeRect(screenX(chosen) - mark, screenY(chosen) - mark, 2 * mark, 2 * mark);
    }
  }
  let cacheKey = "", cache = [];
  function colourAtCached(column, i) {
    const key = colouring + root.dataset.theme;
    if (key !== cacheKey) {
      cacheKey = key;
      cache = Array.from({ length: count }, (_, row) => colourAt(column, row));
    }
    return cache[i];
  }
  function drawLegend() {
    const column = columns[colouring];
    nodeView.drawLegend(byId("legend"), column, data.palette, colourOf("--line"));
    canvas.setAttribute("aria-label", "Map of nodes, coloured by " + column.title);
  }
  function nearest(x, y, allowed) {
    let best = -1, least = Infinity;
    for (let i = 0; i < count; i++) {
      const dx = screenX(i) - x, dy = screenY(i) - y;
      if (allowed && !allowed(dx, dy)) continue;
      const distance = allowed ? Math.abs(dx) + Math.abs(dy) + Math.min(Math.abs(dx), Math.abs(dy)) * 2 : dx * dx + dy * dy;
      if (distance < least) { least = distance; best = i; }
    }
    return best;
  }
  function zoomBy(factor) {
    view.zoom = Math.min(Math.max(view.zoom * factor, 1), 40);
    if (view.zoom === 1) view.x = view.y = 0.5;
    else if (factor > 1 && chosen >= 0) { view.x = places[2 * chosen] / MISSING; view.y = places[2 * chosen + 1] / MISSING; }
    drawMap();
  }
  byId("zoom-in").addEventListener("click", () => zoomBy(1.6));
  byId("zoom-out").addEventListener("click", () => zoomBy(1 / 1.6));
  byId("zoom-reset").addEventListener("click", () => zoomBy(1e-9));
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => { drag = { x: event.offsetX, y: event.offsetY, moved: false }; });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag || event.buttons === 0) return;
    const dx = event.offsetX - drag.x, dy = event.offsetY - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < 5) return;
    drag.moved = true;
    if (view.zoom > 1) { view.x -= dx / width / view.zoom; view.y -= dy / height / view.zoom; drawMap(); }
    drag.x = event.offsetX; drag.y = event.offsetY;
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) choose(nearest(event.offsetX, event.offsetY));
    drag = null;
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey) return; // plain scrolling moves the page
    event.preventDefault();
    zoomBy((event.deltaY || event.deltaX) < 0 ? 1.25 : 0.8);
  }, { passive: false });
  const STEPS = { ArrowRight: (dx) => dx > 0.5, ArrowLeft: (dx) => dx < -0.5, ArrowDown: (dx, dy) => dy > 0.5, ArrowUp: (dx, dy) => dy < -0.5 };
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "+" || event.key === "=") zoomBy(1.6);
    else if (event.key === "-") zoomBy(1 / 1.6);
    else if (STEPS[event.key]) {
      event.preventDefault();
      const found = nearest(screenX(chosen), screenY(chosen), STEPS[event.key]);
      if (found >= 0) choose(found);
    }
  });

  // ---- the chosen node ----
  const say = (text) => { byId("message").textContent = text; };
  function choose(i) {
    chosen = i;
    say("");
    drawMap();
    byId("panel-title").textContent = "Node " + nameOf(i);
    const facts = byId("panel-facts");
    facts.textContent = "";
    for (const [key, column] of Object.entries(columns).filter(([, column]) => !column.chart)) {
      const row = document.createElement("div"), term = document.createElement("dt"), text = document.createElement("dd");
      row.dataset.fact = key;
      term.textContent = column.title;
      text.textContent = textOf(column, i);
      row.append(term, text);
      facts.append(row);
    }
    byId("panel-words").textContent = nodeView.wordsOf(columns, (key) => columns[key].values[i]);
    drawNeighbours(i);
    drawNodeCharts();
  }
  function drawNeighbours(i) {
    const place = byId("panel-neighbours"), degree = valueOf(columns.degree, i), known = around.counts[i];
    place.textContent = "";
    byId("panel-neighbours-title").textContent = nodeView.neighboursTitle(known, degree);
    for (let j = around.starts[i]; j < around.starts[i] + known; j++) {
      const row = rowByNumber.get(around.nodes[j]), button = document.createElement("button");
      button.type = "button";
      button.textContent = row === undefined ? data.elsewhere[around.nodes[j]] || String(around.nodes[j]) : nameOf(row);
      if (row === undefined) { button.disabled = true; button.title = "not on the map"; }
      else button.addEventListener("click", () => choose(row));
      place.append(button);
    }
  }
  function shownLayer() { return filters.layers[Number(byId("layer").value || 0)]; }
  function coefficientsOf(i, head) {
    const { heads, orders } = filters, { step, alpha } = shownLayer(), start = i * heads * orders, values = new Array(orders).fill(0);
    for (let h = 0; h < heads; h++) if (head === 0 || head === h + 1)
      for (let k = 0; k < orders; k++) values[k] += (alpha[start + h * orders + k] * step) / (head === 0 ? heads : 1);
    return values;
  }
  function drawNodeCharts() {
    if (!filters || chosen < 0) return;
    const head = Number(byId("head").value), alpha = coefficientsOf(chosen, head);
    const response = nodeView.responseOf(alpha, filters.tokens);
    const cluster = columns.cluster.values[chosen], mean = shownLayer().mean[cluster][head], spread = shownLayer().spread[cluster][head];
    const colour = data.palette[cluster % data.palette.length], axes = { margin: { l: 56, r: 12, t: 36, b: 46 }, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 } };
    Plotly.react("node-filter", [
      { x: filters.lam.concat(filters.lam.slice().reverse()), y: mean.map((m, l) => m + spread[l]).concat(mean.map((m, l) => m - spread[l]).reverse()), fill: "toself", fillcolor: colour + "2e", line: { width: 0 }, hoverinfo: "skip", showlegend: false, type: "scatter" },
      { x: filters.lam, y: mean, name: columns.cluster.labels[cluster], mode: "lines", line: { color: colour, width: 2, dash: "dash" } },
      { x: filters.lam, y: response, name: "node", mode: "lines", line: { color: colourOf("--text"), width: 2.5 } },
    ], dressed({ ...axes, xaxis: { title: { text: "frequency λ" } }, yaxis: { title: { text: "response h(λ)" }, automargin: true, rangemode: "tozero" } }), config);
    Plotly.react("node-coefficients", [{ type: "bar", x: alpha.map((_, k) => k), y: alpha, marker: { color: data.palette[0] }, name: "α" }],
      dressed({ ...axes, margin: { l: 56, r: 12, t: 10, b: 46 }, xaxis: { title: { text: "order k" }, dtick: alpha.length > 12 ? 2 : 1 }, yaxis: { title: { text: "coefficient α_k" }, automargin: true } }), config);
    byId("coefficients-text").textContent = nodeView.coefficientWords(alpha);
  }

  // ---- controls ----
  const select = byId("colour");
  for (const [key, column] of Object.entries(columns)) select.add(new Option(column.title, key));
  select.addEventListener("change", () => { colouring = select.value; drawMap(); drawLegend(); });
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = byId("node").value.trim(), row = rowByName.get(wanted);
    if (row !== undefined) choose(row);
    else if (wanted === "") say("Type the name of a node.");
    else say("There is no node “" + wanted + "” on this map" + (count < data.total ? ", which shows a sample." : "."));
  });
  if (filters) {
    const heads = byId("head");
    nodeView.headOptions(heads, filters.heads);
    heads.addEventListener("change", drawNodeCharts);
    const layers = byId("layer");
    filters.layers.forEach((_, l) => layers.add(new Option("stage " + (l + 1), String(l))));
    const tellInput = () => { byId("layer-input").textContent = "Relative to " + shownLayer().input + "."; };
    layers.addEventListener("change", () => { drawNodeCharts(); tellInput(); });
    byId("layer-label").hidden = byId("layer-input").hidden = filters.layers.length < 2;
    tellInput();
  }
  window.explorer = { choose: (name) => choose(rowByName.get(String(name))), screen: (name) => { const i = rowByName.get(String(name)); return [screenX(i), screenY(i)]; } };
  drawCharts();
  resize();
  drawLegend();
  choose(data.first);
  new ResizeObserver(() => { if (canvas.clientWidth !== width) resize(); }).observe(canvas);
})();
