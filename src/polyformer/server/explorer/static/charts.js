// Small charts as SVG: curves over the frequency, bars of coefficients, bars of probabilities.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 400, LEFT = 62, RIGHT = 16, TOP = 8, BOTTOM = 38;

function add(parent, name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}

function ticks(low, high, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough)), step = [1, 2, 5, 10].find((f) => f * power >= rough * 0.999) * power;
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), values = [];
  for (let i = Math.ceil(low / step - 1e-9); i <= Math.floor(high / step + 1e-9); i++) values.push(i * step);
  return { values, digits };
}

function frame(host, label, height, x, y, titles, xTicks) {
  host.textContent = "";
  const keys = document.createElement("div");
  keys.className = "keys";
  host.append(keys);
  const svg = add(host, "svg", { viewBox: `0 0 ${WIDTH} ${height}`, role: "img", "aria-label": label });
  const toX = (value) => LEFT + ((value - x[0]) / (x[1] - x[0])) * (WIDTH - LEFT - RIGHT), toY = (value) => height - BOTTOM - ((value - y[0]) / (y[1] - y[0])) * (height - TOP - BOTTOM);
  const marks = ticks(y[0], y[1], 5);
  for (const value of marks.values) {
    add(svg, "line", { class: Math.abs(value) < 1e-12 ? "zero" : "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: toY(value), y2: toY(value) });
    add(svg, "text", { x: LEFT - 6, y: toY(value) + 4, "text-anchor": "end" }, value.toFixed(marks.digits).replace("-", "−"));
  }
  for (const value of xTicks.values) add(svg, "text", { x: toX(value), y: height - BOTTOM + 16, "text-anchor": "middle" }, value.toFixed(xTicks.digits));
  add(svg, "line", { class: "axis", x1: LEFT, x2: LEFT, y1: TOP, y2: height - BOTTOM });
  add(svg, "text", { x: (LEFT + WIDTH - RIGHT) / 2, y: height - 5, "text-anchor": "middle" }, titles[0]);
  add(svg, "text", { x: 11, y: (TOP + height - BOTTOM) / 2, "text-anchor": "middle", transform: `rotate(-90 11 ${(TOP + height - BOTTOM) / 2})` }, titles[1]);
  return { svg, keys, toX, toY };
}

function range(values) {
  let low = 0, high = 0;
  for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
  if (high - low < 1e-9) high = low + 1;
  const margin = 0.05 * (high - low);
  return [low < 0 ? low - margin : 0, high > 0 ? high + margin : 0];
}

// curves: {name, y, colour, dash, width}; band: {low, high, colour}; all over the same x.
export function drawCurves(host, label, x, curves, band) {
  const height = 250, all = curves.flatMap((curve) => curve.y).concat(band ? [...band.low, ...band.high] : []);
  const { svg, keys, toX, toY } = frame(host, label, height, [x[0], x[x.length - 1]], range(all), ["frequency λ", "response h(λ)"], ticks(x[0], x[x.length - 1], 4));
  const path = (y) => y.map((value, i) => toX(x[i]).toFixed(1) + "," + toY(value).toFixed(1)).join(" ");
  if (band) add(svg, "polygon", { points: path(band.high) + " " + band.low.map((value, i) => toX(x[i]).toFixed(1) + "," + toY(value).toFixed(1)).reverse().join(" "), fill: band.colour, "fill-opacity": 0.18 });
  for (const curve of curves) {
    add(svg, "polyline", { points: path(curve.y), fill: "none", stroke: curve.colour, "stroke-width": curve.width || 2, "stroke-linejoin": "round", ...(curve.dash ? { "stroke-dasharray": "7 4" } : {}) });
    const key = document.createElement("span"), line = document.createElement("i");
    line.style.borderColor = curve.colour;
    if (curve.dash) line.className = "dash";
    key.append(line, curve.name);
    keys.append(key);
  }
  const reading = document.createElement("span"), cross = add(svg, "line", { class: "cross", y1: TOP, y2: height - BOTTOM, visibility: "hidden" });
  reading.className = "reading";
  keys.append(reading);
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), share = ((event.clientX - box.left) / box.width) * WIDTH;
    const i = Math.max(0, Math.min(x.length - 1, Math.round(((share - LEFT) / (WIDTH - LEFT - RIGHT)) * (x.length - 1))));
    cross.setAttribute("x1", toX(x[i]));
    cross.setAttribute("x2", toX(x[i]));
    cross.setAttribute("visibility", "visible");
    reading.textContent = "λ " + x[i].toFixed(2) + ": " + curves.map((curve) => curve.y[i].toFixed(3)).join(" / ");
  });
  svg.addEventListener("pointerleave", () => { cross.setAttribute("visibility", "hidden"); reading.textContent = ""; });
  host.curves = curves; // what is drawn, for tests and for people at the console
}

export function drawBars(host, label, values, colour) {
  const height = 170, last = values.length - 0.5, every = values.length > 12 ? 2 : 1;
  const marks = { values: values.map((_, k) => k).filter((k) => k % every === 0), digits: 0 };
  const { svg, toX, toY } = frame(host, label, height, [-0.5, last], range(values), ["order k", "coefficient α_k"], marks);
  values.forEach((value, k) => add(svg, "rect", { x: toX(k - 0.35), width: toX(0.35) - toX(-0.35), y: Math.min(toY(0), toY(value)), height: Math.abs(toY(value) - toY(0)), fill: colour }));
}

// rows: {name, share, before, colour, text, predicted}
export function drawShares(host, rows) {
  host.textContent = "";
  for (const row of rows) {
    const line = document.createElement("div");
    line.className = "bar" + (row.predicted ? " predicted" : "");
    const part = (name, text) => { const element = document.createElement("span"); element.className = name; if (text !== undefined) element.textContent = text; return element; };
    const name = part("name", row.name), track = part("track"), fill = part("fill");
    name.title = row.name;
    fill.style.width = 100 * row.share + "%";
    fill.style.background = row.colour;
    track.append(fill);
    if (row.before !== undefined) { const mark = part("before"); mark.style.left = `calc(${100 * row.before}% - 1px)`; mark.title = "as it is: " + row.before.toFixed(3); track.append(mark); }
    line.append(name, track, part("number", row.text));
    host.append(line);
  }
}
