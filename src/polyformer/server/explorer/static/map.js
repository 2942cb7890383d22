// The map: all nodes as points in one draw call of WebGL, edges around the chosen node as lines, and marks as rings.
// Points are drawn into a picture larger than the canvas. Panning shifts the picture, and so costs the same for any number
// of nodes, until the map leaves the picture and the next one is made.

const POINT_VERTEX = `
attribute vec2 place; attribute vec4 colour; uniform vec2 scale; uniform vec2 shift; uniform float size;
varying lowp vec4 tint;
void main() { gl_Position = vec4(place * scale + shift, 0.0, 1.0); gl_PointSize = size; tint = colour; }`;
const SQUARE = "precision lowp float; varying lowp vec4 tint; void main() { gl_FragColor = tint; }";
const ROUND = `precision mediump float; varying lowp vec4 tint;
void main() { vec2 p = gl_PointCoord - 0.5; if (dot(p, p) > 0.25) discard; gl_FragColor = tint; }`;
const RING = `precision mediump float; varying lowp vec4 tint;
void main() { vec2 p = gl_PointCoord - 0.5; float r = dot(p, p); if (r > 0.25 || r < 0.11) discard; gl_FragColor = tint; }`;
const PICTURE_VERTEX = `
attribute vec2 place; uniform vec2 scale; uniform vec2 shift; varying mediump vec2 at;
void main() { at = place; gl_Position = vec4((place * 2.0 - 1.0) * scale + shift, 0.0, 1.0); }`;
const PICTURE = "precision mediump float; uniform sampler2D picture; varying mediump vec2 at; void main() { gl_FragColor = texture2D(picture, at); }";
const LARGER = 2; // sides of the picture of all points, in sides of the canvas
const DIM = 0.12; // what is left of the colour of nodes that do not fit the search
const MOST_MOVING = 100000; // points of a picture that is made while the map moves; at rest all are drawn

export function createMap(canvas) {
  const gl = canvas.getContext("webgl", { alpha: false, antialias: false, depth: false, stencil: false, powerPreference: "high-performance" });
  if (!gl) return null;
  const programs = { square: build(gl, SQUARE), round: build(gl, ROUND), ring: build(gl, RING), picture: build(gl, PICTURE, PICTURE_VERTEX) };
  const buffers = { places: gl.createBuffer(), colours: gl.createBuffer(), lines: gl.createBuffer(), lineColours: gl.createBuffer(), marks: gl.createBuffer(), markColours: gl.createBuffer(), corners: gl.createBuffer() };
  const picture = { texture: gl.createTexture(), frame: gl.createFramebuffer(), width: 0, height: 0, valid: false, whole: true };
  gl.bindBuffer(gl.ARRAY_BUFFER, buffers.corners);
  gl.bufferData(gl.ARRAY_BUFFER, new Uint8Array([0, 0, 1, 0, 0, 1, 1, 1]), gl.STATIC_DRAW);
  const view = { zoom: 1, x: 0.5, y: 0.5 };
  const map = { view, count: 0, places: new Uint16Array(0), grid: null, onClick: () => {} };
  let width = 1, height = 1, ratio = 1, lines = 0, marks = 0, background = [1, 1, 1], stride = 1, waiting = false, moving = false, resting = 0, bytes = new Uint8Array(0);

  map.resize = () => {
    width = Math.max(canvas.clientWidth, 1);
    height = Math.max(canvas.clientHeight, 1);
    ratio = Math.min(window.devicePixelRatio || 1, map.count > 300000 ? 1 : 2);
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    picture.width = Math.min(LARGER * canvas.width, 4096);
    picture.height = Math.min(LARGER * canvas.height, 4096);
    gl.bindTexture(gl.TEXTURE_2D, picture.texture);
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, picture.width, picture.height, 0, gl.RGBA, gl.UNSIGNED_BYTE, null);
    for (const side of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, side, gl.CLAMP_TO_EDGE);
    gl.bindFramebuffer(gl.FRAMEBUFFER, picture.frame);
    gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, picture.texture, 0);
    gl.bindFramebuffer(gl.FRAMEBUFFER, null);
    picture.valid = false;
    map.draw();
  };
  // Pixels of the map's side in x and y at zoom 1.
  function side() {
    const [columns, rows] = map.grid || [1, 1], unit = Math.min(width / columns, height / rows) * 0.94;
    return [unit * columns, unit * rows];
  }
  // Points are drawn in a scattered order, so that the first of them are a fair sample.
  const rowAt = (position) => (position * stride) % map.count;

  map.setPlaces = (places, grid) => {
    map.places = places;
    map.grid = grid;
    map.count = places.length / 2;
    stride = map.count > MOST_MOVING ? coprime(map.count) : 1;
    let scattered = places;
    if (stride > 1) {
      scattered = new Uint16Array(places.length);
      for (let position = 0, row = 0; position < map.count; position++, row = (row + stride) % map.count) { scattered[2 * position] = places[2 * row]; scattered[2 * position + 1] = places[2 * row + 1]; }
    }
    gl.bindBuffer(gl.ARRAY_BUFFER, buffers.places);
    gl.bufferData(gl.ARRAY_BUFFER, scattered, gl.STATIC_DRAW);
    bytes = new Uint8Array(4 * map.count).fill(255);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffers.colours);
    gl.bufferData(gl.ARRAY_BUFFER, bytes, gl.DYNAMIC_DRAW);
    map.resize();
  };
  // table: red, green, blue for each of 65,536 steps; mask: a bit for each node, or null.
  map.setColours = (values, table, back, mask) => {
    background = back.map((part) => part / 255);
    for (let position = 0, row = 0; position < map.count; position++, row = (row + stride) % map.count) {
      const step = 3 * values[row], fits = !mask || (mask[row >> 3] >> (7 - (row & 7))) & 1, left = fits ? 1 : DIM;
      for (let c = 0; c < 3; c++) bytes[4 * position + c] = table[step + c] * left + back[c] * (1 - left);
      bytes[4 * position + 3] = 255;
    }
    gl.bindBuffer(gl.ARRAY_BUFFER, buffers.colours);
    gl.bufferSubData(gl.ARRAY_BUFFER, 0, bytes);
    picture.valid = false;
    map.draw();
  };
  // edges: rows in pairs; the first `own` pairs are the chosen node's.
  map.setEdges = (edges, own, strong, weak) => {
    const places = new Uint16Array(2 * edges.length), colours = new Uint8Array(4 * edges.length);
    let kept = 0;
    for (let e = edges.length / 2 - 1; e >= 0; e--) { // the chosen node's last, above all others
      if (edges[2 * e] >= map.count || edges[2 * e + 1] >= map.count) continue;
      const colour = e < own ? strong : weak;
      for (const row of [edges[2 * e], edges[2 * e + 1]]) {
        places[2 * kept] = map.places[2 * row];
        places[2 * kept + 1] = map.places[2 * row + 1];
        colours.set(colour, 4 * kept);
        kept++;
      }
    }
    lines = kept;
    upload(buffers.lines, places.subarray(0, 2 * kept), buffers.lineColours, colours.subarray(0, 4 * kept));
    map.draw();
  };
  map.setMarks = (rows, colours) => {
    const shown = rows.map((row, i) => [row, colours[i]]).filter(([row]) => row < map.count);
    marks = shown.length;
    upload(buffers.marks, Uint16Array.from(shown.flatMap(([row]) => [map.places[2 * row], map.places[2 * row + 1]])), buffers.markColours, Uint8Array.from(shown.flatMap(([, colour]) => colour)));
    map.draw();
  };
  function upload(places, placeData, colours, colourData) {
    gl.bindBuffer(gl.ARRAY_BUFFER, places);
    gl.bufferData(gl.ARRAY_BUFFER, placeData, gl.DYNAMIC_DRAW);
    gl.bindBuffer(gl.ARRAY_BUFFER, colours);
    gl.bufferData(gl.ARRAY_BUFFER, colourData, gl.DYNAMIC_DRAW);
  }

  map.pointSize = () => {
    const [x, y] = side(), cell = Math.sqrt((x * y) / Math.max(map.count, 1)) * view.zoom;
    return map.grid ? Math.max(cell * 0.92, 1.5) : Math.min(Math.max(cell * 0.45, 2), 9);
  };
  // The map's places on a target of so many pixels of the screen, the view in its middle.
  function use(program, places, colours, size, wide = width, high = height) {
    const [x, y] = side(), zoom = view.zoom;
    gl.useProgram(program.program);
    gl.uniform2f(program.scale, (2 * x * zoom) / wide, (-2 * y * zoom) / high);
    gl.uniform2f(program.shift, (-2 * view.x * x * zoom) / wide, (2 * view.y * y * zoom) / high);
    gl.uniform1f(program.size, size * ratio);
    gl.bindBuffer(gl.ARRAY_BUFFER, places);
    gl.enableVertexAttribArray(program.place);
    gl.vertexAttribPointer(program.place, 2, gl.UNSIGNED_SHORT, true, 0, 0);
    gl.bindBuffer(gl.ARRAY_BUFFER, colours);
    gl.enableVertexAttribArray(program.colour);
    gl.vertexAttribPointer(program.colour, 4, gl.UNSIGNED_BYTE, true, 0, 0);
  }
  function makePicture() {
    const size = map.pointSize(), few = moving ? Math.min(MOST_MOVING, map.count) : map.count;
    gl.bindFramebuffer(gl.FRAMEBUFFER, picture.frame);
    gl.viewport(0, 0, picture.width, picture.height);
    gl.clearColor(background[0], background[1], background[2], 1);
    gl.clear(gl.COLOR_BUFFER_BIT);
    use(size >= 5 && !map.grid ? programs.round : programs.square, buffers.places, buffers.colours, size, picture.width / ratio, picture.height / ratio);
    gl.drawArrays(gl.POINTS, 0, few);
    gl.bindFramebuffer(gl.FRAMEBUFFER, null);
    Object.assign(picture, { x: view.x, y: view.y, zoom: view.zoom, valid: true, whole: few === map.count });
    map.drawn = few;
    map.pictures = (map.pictures || 0) + 1;
  }
  // Where the picture lies on the canvas, in shares of the canvas: its half sides and its middle.
  function pictureAt() {
    const [x, y] = side(), grown = view.zoom / picture.zoom;
    return { right: (grown * picture.width) / canvas.width, up: (grown * picture.height) / canvas.height, x: (2 * (picture.x - view.x) * x * view.zoom) / width, y: (-2 * (picture.y - view.y) * y * view.zoom) / height };
  }
  function fits({ right, up, x, y }) {
    const grown = view.zoom / picture.zoom, covers = right - Math.abs(x) >= 1 && up - Math.abs(y) >= 1;
    return picture.valid && covers && grown < 2 && (moving || (grown === 1 && picture.whole));
  }
  function render() {
    if (map.count && !fits(pictureAt())) makePicture();
    gl.viewport(0, 0, canvas.width, canvas.height);
    if (!map.count) { gl.clearColor(background[0], background[1], background[2], 1); gl.clear(gl.COLOR_BUFFER_BIT); return; }
    const place = pictureAt(), program = programs.picture, same = view.zoom === picture.zoom, filter = same ? gl.NEAREST : gl.LINEAR;
    const whole = (share, pixels) => (same ? Math.round((share * pixels) / 2) * (2 / pixels) : share); // points stay sharp
    gl.useProgram(program.program);
    gl.uniform2f(program.scale, place.right, place.up);
    gl.uniform2f(program.shift, whole(place.x, canvas.width), whole(place.y, canvas.height));
    gl.bindTexture(gl.TEXTURE_2D, picture.texture);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, filter);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MAG_FILTER, filter);
    gl.bindBuffer(gl.ARRAY_BUFFER, buffers.corners);
    gl.enableVertexAttribArray(program.place);
    gl.vertexAttribPointer(program.place, 2, gl.UNSIGNED_BYTE, false, 0, 0);
    gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
    drawOver(map.pointSize());
  }
  function drawOver(size) {
    if (lines) {
      gl.enable(gl.BLEND);
      gl.blendFunc(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA);
      use(programs.square, buffers.lines, buffers.lineColours, 1);
      gl.drawArrays(gl.LINES, 0, lines);
      gl.disable(gl.BLEND);
    }
    if (marks) {
      const around = map.grid ? size : size + 7;
      use(programs.ring, buffers.marks, buffers.markColours, Math.max(around, 13));
      gl.drawArrays(gl.POINTS, 0, marks - 1);
      use(programs.ring, buffers.marks, buffers.markColours, Math.max(around + 5, 20));
      gl.drawArrays(gl.POINTS, marks - 1, 1);
    }
  }
  map.draw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(frame);
  };
  function frame() {
    waiting = false;
    render();
  }
  // While the map moves, the picture is shifted and grown; once it rests, a sharp and whole one is made.
  function stir() {
    moving = true;
    clearTimeout(resting);
    resting = setTimeout(() => { moving = false; map.draw(); }, 180);
    map.draw();
  }
  map.move = (dx, dy) => {
    const [x, y] = side();
    view.x -= dx / (x * view.zoom);
    view.y -= dy / (y * view.zoom);
    stir();
  };
  map.zoomAt = (factor, sx = width / 2, sy = height / 2) => {
    const [x, y] = side(), before = view.zoom;
    view.zoom = Math.min(Math.max(view.zoom * factor, 0.5), 400);
    const change = 1 / before - 1 / view.zoom;
    view.x += ((sx - width / 2) / x) * change;
    view.y += ((sy - height / 2) / y) * change;
    stir();
  };
  map.reset = () => { Object.assign(view, { zoom: 1, x: 0.5, y: 0.5 }); map.draw(); };
  map.screen = (row) => {
    const [x, y] = side();
    return [(map.places[2 * row] / 65535 - view.x) * x * view.zoom + width / 2, (map.places[2 * row + 1] / 65535 - view.y) * y * view.zoom + height / 2];
  };
  map.centre = (row) => { view.x = map.places[2 * row] / 65535; view.y = map.places[2 * row + 1] / 65535; map.draw(); };
  map.keepInView = (row) => {
    const [x, y] = map.screen(row), edge = 40;
    if (x < edge || y < edge || x > width - edge || y > height - edge) map.centre(row);
  };
  map.nearest = (sx, sy, reach) => {
    const [x, y] = side(), fx = (x * view.zoom) / 65535, fy = (y * view.zoom) / 65535;
    const px = (sx - width / 2) / fx + view.x * 65535, py = (sy - height / 2) / fy + view.y * 65535;
    let best = -1, least = reach * reach;
    for (let row = 0; row < map.count; row++) {
      const dx = (map.places[2 * row] - px) * fx, dy = (map.places[2 * row + 1] - py) * fy, distance = dx * dx + dy * dy;
      if (distance < least) { least = distance; best = row; }
    }
    return best;
  };
  map.pixel = (sx, sy) => { // for tests: the colour at a place of the screen
    render();
    const colour = new Uint8Array(4);
    gl.readPixels(Math.round(sx * ratio), Math.round((height - sy) * ratio), 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, colour);
    return [...colour].slice(0, 3);
  };
  map.finish = () => { const one = new Uint8Array(4); gl.readPixels(0, 0, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, one); };
  canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
  canvas.addEventListener("webglcontextrestored", () => window.location.reload());
  listen(canvas, map);
  return map;
}

function build(gl, fragment, vertex = POINT_VERTEX) {
  const program = gl.createProgram();
  for (const [kind, source] of [[gl.VERTEX_SHADER, vertex], [gl.FRAGMENT_SHADER, fragment]]) {
    const shader = gl.createShader(kind);
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.bindAttribLocation(program, 0, "place");
  gl.linkProgram(program);
  const result = { program };
  for (const name of ["scale", "shift", "size"]) result[name] = gl.getUniformLocation(program, name);
  for (const name of ["place", "colour"]) result[name] = gl.getAttribLocation(program, name);
  return result;
}

function coprime(count) {
  const gcd = (a, b) => (b ? gcd(b, a % b) : a);
  let stride = Math.floor(count * 0.6180339887);
  while (gcd(stride, count) !== 1) stride++;
  return stride;
}

// Dragging and pinching by any pointer, the wheel, and clicks.
function listen(canvas, map) {
  const pointers = new Map();
  let moved = false;
  const spread = () => { const [a, b] = [...pointers.values()]; return { distance: Math.hypot(a.x - b.x, a.y - b.y), x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 }; };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, { x: event.offsetX, y: event.offsetY, fromX: event.offsetX, fromY: event.offsetY });
    moved = pointers.size > 1;
  });
  canvas.addEventListener("pointermove", (event) => {
    const pointer = pointers.get(event.pointerId);
    if (!pointer) return;
    if (!moved && Math.hypot(event.offsetX - pointer.fromX, event.offsetY - pointer.fromY) < 5) return;
    moved = true;
    const before = pointers.size === 2 ? spread() : null, dx = event.offsetX - pointer.x, dy = event.offsetY - pointer.y;
    pointer.x = event.offsetX;
    pointer.y = event.offsetY;
    if (!before) return map.move(dx, dy);
    const after = spread();
    map.move(after.x - before.x, after.y - before.y);
    if (before.distance > 0) map.zoomAt(after.distance / before.distance, after.x, after.y);
  });
  const end = (event) => {
    if (pointers.delete(event.pointerId) && !moved && event.type === "pointerup") map.onClick(event.offsetX, event.offsetY);
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    map.zoomAt(Math.exp(-Math.max(-200, Math.min(200, event.deltaY)) / 300), event.offsetX, event.offsetY);
  }, { passive: false });
}
