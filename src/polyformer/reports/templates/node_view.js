"use strict";
// What the report's explorer and the live one share: values and colours of nodes, legends, words, responses, theme.
const nodeView = (() => {
  const MISSING = 65535;
  const RAMP = [[0, 32, 76], [60, 77, 110], [124, 123, 120], [187, 175, 113], [255, 234, 70]]; // cividis

  // ---- values: a column has labels, or least and step; raw is a 16-bit step ----
  function valueOf(column, raw) {
    if (raw === MISSING || raw === undefined) return null;
    return column.labels ? raw : column.least + raw * column.step;
  }
  function textOf(column, raw) {
    const value = valueOf(column, raw);
    if (value === null) return "unknown";
    return column.labels ? column.labels[value] : value.toFixed(column.digits);
  }

  // ---- colours ----
  function rampColour(share) {
    const place = Math.min(Math.max(share, 0), 1) * (RAMP.length - 1), i = Math.min(Math.floor(place), RAMP.length - 2), t = place - i;
    return RAMP[i].map((low, c) => Math.round(low + t * (RAMP[i + 1][c] - low)));
  }
  const rampAt = (share) => "rgb(" + rampColour(share).join(",") + ")";
  const coloursOf = (column, palette) => column.colours || palette;
  // The share of the ramp for each step: its place between least and most, or its rank where a few values are far off.
  function sharesOf(column) {
    const shares = new Float32Array(MISSING), range = column.most - column.least;
    for (let raw = 0; raw < MISSING; raw++) shares[raw] = range > 0 ? (raw * column.step) / range : 0;
    const counts = new Uint32Array(MISSING + 1);
    for (const raw of column.values) counts[raw]++;
    const known = column.values.length - counts[MISSING];
    column.middle = column.least;
    for (let raw = 0, below = 0; raw < MISSING && known; raw++) {
      if (below <= known / 2) column.middle = column.least + raw * column.step;
      below += counts[raw];
    }
    const middle = range > 0 ? (column.middle - column.least) / range : 0.5;
    column.ranked = middle < 0.1 || middle > 0.9;
    if (column.ranked) for (let raw = 0, below = 0; raw < MISSING; raw++) { shares[raw] = (below + counts[raw] / 2) / Math.max(known, 1); below += counts[raw]; }
    return shares;
  }
  function colourAt(column, raw, palette, unknown) {
    const value = valueOf(column, raw);
    if (value === null) return unknown;
    if (column.labels) return coloursOf(column, palette)[value % coloursOf(column, palette).length];
    column.shares = column.shares || sharesOf(column);
    return rampAt(column.shares[raw]);
  }
  function drawLegend(place, column, palette, unknown) {
    place.textContent = "";
    const entry = (colour, text) => {
      const span = document.createElement("span"), box = document.createElement("i");
      box.style.background = colour;
      span.append(box, text);
      place.append(span);
    };
    if (column.labels) {
      column.labels.slice(0, 24).forEach((label, i) => entry(coloursOf(column, palette)[i % coloursOf(column, palette).length], label));
      if (column.labels.length > 24) place.append("and " + (column.labels.length - 24) + " more");
    } else {
      column.shares = column.shares || sharesOf(column);
      const bar = document.createElement("i");
      bar.className = "ramp";
      bar.style.background = "linear-gradient(90deg," + [0, 0.25, 0.5, 0.75, 1].map(rampAt).join(",") + ")";
      place.append(column.least.toFixed(column.digits), bar, column.most.toFixed(column.digits));
      if (column.ranked) bar.title = "coloured by rank; half of the nodes are below " + column.middle.toFixed(column.digits);
    }
    if (column.values.includes(MISSING)) entry(unknown, "unknown");
  }

  // ---- words: what matters most, in front of the whole list ----
  function wordsOf(columns, raw) {
    const text = (key) => textOf(columns[key], raw(key));
    const known = valueOf(columns.class, raw("class")) !== null, part = columns.part ? valueOf(columns.part, raw("part")) : null;
    const words = columns.correct || columns.class.labels ? [known ? "Class " + text("class") : "No known class"] : [known ? "Value " + text("class") : "No known value"];
    if (columns.prediction) words.push("predicted " + text("prediction"));
    if (columns.correct && known) words.push(text("correct"));
    if (part !== null) words.push(columns.part.labels[part] + " node");
    return words.join(" · ");
  }
  const neighboursTitle = (known, degree) => (degree === 0 ? "No neighbours" : known < degree ? "Neighbours (" + known + " of " + degree.toLocaleString("en") + ")" : "Neighbours");

  // ---- filters ----
  const responseOf = (alpha, tokens) => tokens[0].map((_, l) => alpha.reduce((sum, a, k) => sum + a * tokens[k][l], 0));
  const coefficientWords = (alpha) => "α: " + alpha.map((a) => a.toFixed(4)).join(", ");
  function headOptions(select, heads) {
    if (heads > 1) select.add(new Option("mean of heads", "0"));
    for (let h = 1; h <= heads; h++) select.add(new Option(heads > 1 ? "head " + h : "the only head", String(h)));
  }

  // ---- theme ----
  const colourVariable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  function theme(button, changed) {
    const root = document.documentElement;
    const set = (dark) => {
      root.dataset.theme = dark ? "dark" : "light";
      button.textContent = dark ? "Light" : "Dark";
      button.setAttribute("aria-pressed", String(dark));
    };
    set(window.matchMedia("(prefers-color-scheme: dark)").matches);
    button.addEventListener("click", () => { set(root.dataset.theme !== "dark"); changed(); });
  }

  return { MISSING, valueOf, textOf, rampColour, rampAt, coloursOf, sharesOf, colourAt, drawLegend, wordsOf, neighboursTitle, responseOf, coefficientWords, headOptions, colourVariable, theme };
})();
