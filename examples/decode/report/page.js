// SPDX-License-Identifier: Apache-2.0
// Draws the data of the page (docs/report.md): of each run a timeline and the text, and charts of all.
"use strict";

const MIP = 8;    // columns of a picture that are one in its coarse copy
const AXIS = 18;  // pixels under a timeline
const SHADES = 8;  // of a colour in the text, page.css has them
const FOUND = 500;  // places that are marked at most
const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [4, 4], [12, 4], [1, 2]];  // beside 6 colours: 42 kinds of line
// Charts: value(counter of a column, steps of the column, run); what is not known stays as it was. The pass of a later
// message attends nothing that counts.
const METRICS = [
  ["Attended tokens, mean of a head", "attended", (of, steps, run) => of("attended") / run.query_heads / steps || NaN],
  ["Captured attention mass", "captured_count", (of) => of("captured_sum") / of("captured_count")],
  ["Agreeability", "agreeability_count", (of) => of("agreeability_sum") / of("agreeability_count")],
  ["Entropy of the posterior, bits", "entropy_count", (of) => of("entropy_sum") / of("entropy_count")],
  ["Segments zoomed into, a token", "zooms", (of, steps) => of("zooms") / steps],
  ["Keys and values that are kept", "details", (of) => of("details"), size],
  ["Summaries and tables", "metadata", (of) => of("summaries") + of("metadata"), size],
  ["In the file", "file", (of) => of("file"), size],
  ["Hits in memory", "hits", (of) => of("hits") / (of("hits") + of("misses"))],
  ["From the file, a token", "bytes_in", (of, steps) => of("bytes_in") / steps, size],
  ["To the file, a token", "bytes_out", (of, steps) => of("bytes_out") / steps, size],
];
const PER = {sequence: "one choice for all layers", layer: "a choice for each layer",
  kv_head: "a choice for each KV head", head: "a choice for each head"};
const UNITS = {share: "share of the votes", score: "score", mass: "mass"};

const byId = (id) => document.getElementById(id);
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}
function size(bytes) {
  return bytes < 2 ** 20 ? `${+(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 2 ** 20).toFixed(1)} MiB`;
}

// Levels of pieces over time, by classes of lanes that are alike.
class Grid {
  constructor(raw, pieces) {
    Object.assign(this, raw);
    this.starts = raw.classes.map((list) => {  // where a piece's runs are
      const starts = new Int32Array(pieces).fill(-1);
      for (let at = 0; at < list.length; at += 2 + 3 * list[at + 1]) starts[list[at]] = at;
      return starts;
    });
  }
  // visit(first column, last column, level, lanes)
  each(lanes, piece, visit) {
    const weights = new Map();
    for (const lane of lanes) weights.set(this.lanes[lane], (weights.get(this.lanes[lane]) || 0) + 1);
    for (const [kind, weight] of weights) {
      const list = this.classes[kind], start = this.starts[kind][piece];
      if (start < 0) continue;
      for (let at = start + 2, column = 0; at < start + 2 + 3 * list[start + 1]; at += 3) {
        column += list[at] + list[at + 1];
        visit(column - list[at + 1], column, list[at + 2], weight);
      }
    }
  }
  // How many of the lanes have each level at a step.
  count(lanes, piece, step) {
    const counts = [lanes.length, 0, 0, 0, 0, 0, 0, 0], column = Math.floor(step / this.stride);
    this.each(lanes, piece, (first, last, level, weight) => {
      if (first <= column && column < last) counts[level] += weight, counts[0] -= weight;
    });
    return counts;
  }
}

class Run {
  constructor(raw, words) {
    Object.assign(this, raw, {words});
    this.starts = new Int32Array(words.length + 1);  // of tokens in the text, in UTF-16 units
    words.forEach((word, t) => { this.starts[t + 1] = this.starts[t] + word.length; });
    this.rows = [];  // pieces as they are shown: the open text last
    for (let at = 5; at < raw.pieces.length; at += 5) {
      const [begin, , end, since, segment] = raw.pieces.slice(at, at + 5);
      this.rows.push({id: at / 5, begin, end, since, segment});
    }
    const covered = this.rows.length ? this.rows.at(-1).end : 0;
    this.rows.push({id: 0, begin: covered, end: raw.tokens, since: 0, segment: -1, open: true});
    this.rowOf = new Int32Array(raw.tokens + 1).fill(this.rows.length - 1);
    this.rows.slice(0, -1).forEach((row, r) => this.rowOf.fill(r, row.begin, row.end));
    this.position = new Int32Array(raw.steps);
    this.stepAt = new Int32Array(raw.tokens + 1).fill(-1);  // the last one at or before a position
    for (let at = 0, step = 0; at < raw.positions.length; at += 2) {
      for (let i = 0; i < raw.positions[at + 1]; ++i, ++step) this.position[step] = raw.positions[at] + i;
    }
    for (let at = 0, step = -1; at <= raw.tokens; ++at) {
      if (this.position[step + 1] === at && step + 1 < raw.steps) ++step;
      this.stepAt[at] = step;
    }
    this.pins = [];  // of rows that are pinned whole: [row, first step, last step]
    for (let at = 0; at < raw.pinned.length; at += 5) {
      const [begin, end, , from, to] = raw.pinned.slice(at, at + 5);
      this.rows.forEach((row, r) => {
        if (!row.open && begin <= row.begin && row.end <= end) this.pins.push([r, from, to]);
      });
    }
    this.grid = new Grid(raw.levels, raw.pieces.length / 5);
    this.here = raw.in_memory && new Grid(raw.in_memory, raw.pieces.length / 5);
    this.columns = Math.ceil(raw.steps / raw.levels.stride);
    this.byRow = new Map();  // choices
    for (const made of raw.choices ? raw.choices.list : [])
      this.byRow.set(made[1], this.byRow.get(made[1]) || []).get(made[1]).push(made);
  }
  stepOf(position) { return this.stepAt[clamp(position, 0, this.tokens)]; }
  rowAt(position) { return this.rowOf[clamp(position, 0, this.tokens)]; }
  columnOf(position) { return Math.floor(this.stepOf(position) / this.grid.stride); }
  textOf(row, most) {
    const text = this.words.slice(row.begin, row.end).join("").replace(/\s+/g, " ").trim();
    return text.length > most ? `${text.slice(0, most - 1)}…` : text;
  }
  // How many tokens of a row are pinned at a step, by role.
  pinnedAt(row, step) {
    const counts = [0, 0];
    for (let at = 0; at < this.pinned.length; at += 5) {
      const [begin, end, role, from, to] = this.pinned.slice(at, at + 5);
      if (from <= step && step < to) counts[role] += Math.max(0, Math.min(end, row.end) - Math.max(begin, row.begin));
    }
    return counts;
  }
  // The picture of some lanes: what share of them reads a row in a column, and has chosen it, as bytes; and what of it
  // is read because it is pinned.
  show(layer, head) {
    const {columns, kv_heads, layers, rows} = this, coarse = Math.ceil(columns / MIP);
    const lanes = this.lanes = [...Array(layers.length * kv_heads).keys()].filter((lane) =>
      (layer < 0 || layers[Math.floor(lane / kv_heads)] === layer) && (head < 0 || lane % kv_heads === head));
    const bytes = (width) => new Uint8Array(rows.length * width);
    const picture = (width) => ({width, read: bytes(width), chosen: bytes(width), pinned: bytes(width)});
    this.fine = picture(columns), this.coarse = picture(coarse), this.changed = new Uint8Array(columns);
    const read = new Int32Array(columns + 1), chosen = new Int32Array(columns + 1);
    rows.forEach((row, r) => {
      read.fill(0), chosen.fill(0);
      this.grid.each(lanes, row.id, (first, last, level, weight) => {
        read[first] += weight * (level & 3), read[last] -= weight * (level & 3);
        if (level & 4) chosen[first] += weight, chosen[last] -= weight;
      });
      for (let c = 0, reads = 0, chooses = 0; c < columns; ++c) {
        if (chosen[c] !== 0) this.changed[c] = 1;
        reads += read[c], chooses += chosen[c];
        const at = r * columns + c, over = r * coarse + Math.floor(c / MIP);
        this.fine.read[at] = Math.ceil(255 * reads / (3 * lanes.length));
        this.fine.chosen[at] = Math.ceil(255 * chooses / lanes.length);
        this.coarse.read[over] = Math.max(this.coarse.read[over], this.fine.read[at]);
        this.coarse.chosen[over] = Math.max(this.coarse.chosen[over], this.fine.chosen[at]);
      }
    });
    const {stride} = this.grid;
    for (const [r, from, to] of this.pins) {
      for (let c = Math.floor(from / stride); c < Math.ceil(to / stride); ++c) {
        const at = r * columns + c, over = r * coarse + Math.floor(c / MIP);
        this.fine.pinned[at] = this.fine.read[at];
        this.coarse.pinned[over] = Math.max(this.coarse.pinned[over], this.fine.read[at]);
      }
    }
  }
  // What the last choices before a step say of a segment, in the rows of the selection that the shown lanes read.
  votes(segment, step) {
    const {kv_heads, group, per} = this, found = {rows: 0, named: 0, best: null, agreeability: 0, agreeing: 0};
    const rows = this.lanes.flatMap((lane) => (per === "sequence" ? 0 : per === "layer" ? Math.floor(lane / kv_heads)
      : per === "kv_head" ? lane : Array.from({length: group}, (_, i) => lane * group + i)));
    for (const row of new Set(rows)) {
      const made = (this.byRow.get(row) || []).findLast((one) => one[0] <= step);
      if (!made) continue;
      ++found.rows;
      if (made[2] >= 0) found.agreeability += made[2] / 1e4, ++found.agreeing;
      for (let at = 4; at < made.length; at += 2) {
        if (made[at] === segment) ++found.named, found.best = Math.max(found.best ?? -Infinity, made[at + 1]);
      }
    }
    return found;
  }
}

let runs = [], views = [], charts = [], first = 0, last = 1, wanted = null;
const state = {layer: -1, head: -1, position: 0, at: 0, zoom: 1, left: 0, pinned: false, crossed: false};
const shown = () => views.filter((view) => !view.card.hidden);
const visible = () => (last - first) / state.zoom;

// @param what  lanes: others are shown; base: another part, size or colours; reveal: the cursor is scrolled to; follow:
//              texts are scrolled to the token that reads, or to the segment under the cross if that has moved last
function redraw(what) {
  if (wanted) return void Object.assign(wanted, what);
  wanted = {...what};
  requestAnimationFrame(() => {
    const now = wanted;
    wanted = null;
    for (const view of shown()) {
      if (now.lanes) view.run.show(state.layer, state.head);
      if (now.lanes || now.base) view.drawBase();
      view.drawCursor(now.reveal, now.follow);
    }
    for (const chart of charts) chart.draw(now.lanes || now.base);
    const word = (shown()[0] || views[0]).run.words[state.position];
    byId("step").value = state.position;
    byId("where").textContent = `${state.position} of ${last}` + (word ? `: “${word.replace(/\s/g, "␣")}”` : "");
  });
}
function zoom(factor, around = state.position + .5) {
  const share = clamp((around - state.left) / visible(), 0, 1);
  state.zoom = clamp(state.zoom * factor, 1, Math.max(1, (last - first) / 16));
  pan(around - share * visible() - state.left);
}
function pan(by) { state.left = clamp(state.left + by, first, last - visible()), redraw({base: true}); }
function moveTo(position, at = state.at, reveal = true, follow = true) {
  state.crossed = at !== state.at || (state.crossed && Math.floor(position) === state.position);
  state.position = clamp(Math.floor(position), first, last - 1), state.at = at;
  if (reveal && (state.position < state.left || state.position >= state.left + visible()))
    pan(state.position - visible() / 2 - state.left);
  redraw({...(reveal && {reveal}), ...(follow && {follow})});
}
// To the next token, or the one before, for which something else is chosen.
function change(by) {
  const run = (shown().find((view) => view.card.contains(document.activeElement)) || shown()[0])?.run;
  let column = run ? run.columnOf(state.position) + by : 0;
  while (run?.changed[column] === 0) column += by;
  if (run?.changed[column]) moveTo(run.position[column * run.grid.stride]);
}

// A canvas, and another one over it for what follows the pointer.
class Plot {
  constructor(label) {
    this.canvases = [make("canvas"), make("canvas")], this.gutter = 0;
    this.box = make("div", {class: "plot", tabindex: "0", role: "application", "aria-label": label}, ...this.canvases);
    this.listen(this.box, (event) => this.point(event));
    this.box.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault(), zoom(Math.exp(-event.deltaY / 300), this.positionAt(event));
    }, {passive: false});
  }
  // The pointer moves the cursor until a click holds it.
  listen(box, point) {
    box.addEventListener("keydown", (event) => this.key(event));
    box.addEventListener("pointermove", (event) => { if (!state.pinned) point(event); });
    box.addEventListener("click", (event) => { state.pinned = !state.pinned, point(event); });
  }
  positionAt(event) {
    const x = event.clientX - this.box.getBoundingClientRect().left - this.gutter;
    return state.left + clamp(x / (this.width - this.gutter), 0, .99999) * visible();
  }
  xOf(position) { return this.gutter + (position - state.left) / visible() * (this.width - this.gutter); }
  point(event) { moveTo(this.positionAt(event), state.at, false); }
  // Gives the canvases the size of their box, and clears them; the pen of the lower one.
  fit() {
    const scale = this.scale = Math.min(2, window.devicePixelRatio || 1);
    this.width = this.box.clientWidth, this.height = this.box.clientHeight;
    for (const canvas of this.canvases) {
      Object.assign(canvas, {width: Math.round(this.width * scale), height: Math.round(this.height * scale)});
      canvas.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
    }
    const pen = this.canvases[0].getContext("2d");
    pen.font = "12px system-ui, sans-serif", pen.textBaseline = "middle";
    return pen;
  }
  overlay() {
    const pen = this.canvases[1].getContext("2d");
    pen.clearRect(0, 0, this.width, this.height), pen.strokeStyle = colour("--ink");
    return pen;
  }
  key(event) {
    const far = event.shiftKey ? 10 : 1, act = {
      ArrowLeft: () => moveTo(state.position - far), ArrowRight: () => moveTo(state.position + far),
      ArrowUp: () => this.other?.(-far), ArrowDown: () => this.other?.(far),
      Home: () => moveTo(first), End: () => moveTo(last - 1), n: () => change(1), p: () => change(-1),
      "+": () => zoom(1.6), "=": () => zoom(1.6), "-": () => zoom(1 / 1.6), 0: () => zoom(0), Escape: () => {},
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    state.pinned = event.key !== "Escape";
    act();
  }
}

class View extends Plot {
  constructor(run) {
    super(`Timeline of ${run.policy}: arrow keys move through tokens and segments`);
    this.run = run, this.top = 0, this.kinds = [];
    const some = run.rows.some((row) => row.segment >= 0) ? "segments" : "pieces of text", stride = run.levels.stride;
    this.detail = make("div", {class: "detail", "aria-live": "polite"});
    this.text = make("div", {class: "text", tabindex: "0", role: "application", "aria-label": `Text of ${run.policy}`});
    const options = make("details", {}, make("summary", {}, "Options"), make("pre", {}, run.options));
    const sub = `${run.rows.length - 1} ${some} · ${PER[run.per] || "nothing is chosen"}` +
      (stride > 1 ? ` · a column is ${stride} tokens` : "");
    this.card = make("article", {class: "run", "aria-label": run.policy}, make("h3", {}, run.policy),
      make("p", {class: "sub"}, sub), this.box, this.detail, this.text, options);
    this.spans = run.rows.map((row, r) => make("span", {style: `--hue: var(--run${r % 6})`, "data-row": r},
      run.words.slice(row.begin, row.end).join("")));
    this.text.append(...this.spans);
    this.listen(this.text, (event) => this.pointText(event));
  }
  point(event) {
    const y = event.clientY - this.box.getBoundingClientRect().top, {rows} = this.run;
    const row = rows[clamp(Math.floor(this.top + y / this.rowHeight), 0, rows.length - 1)];
    moveTo(this.positionAt(event), row.begin, false);
  }
  // @param place  in the text, in UTF-16 units
  setPoint(range, end, place) {
    const {starts, rows} = this.run;
    let low = 0, high = rows.length;
    while (low + 1 < high) {
      const middle = (low + high) >> 1;
      starts[rows[middle].begin] <= place ? low = middle : high = middle;
    }
    const node = this.spans[low].firstChild;
    if (node) range[end](node, clamp(place - starts[rows[low].begin], 0, node.length));
  }
  pointText(event) {
    const place = document.caretPositionFromPoint?.(event.clientX, event.clientY);
    const {starts, rows, prompt} = this.run, row = rows[place?.offsetNode.parentNode?.dataset?.row];
    if (!row) return;
    let token = row.begin;
    while (token + 1 < row.end && starts[token + 1] <= starts[row.begin] + place.offset) ++token;
    moveTo(token < prompt ? state.position : token, token, false, false);  // the text stays under the pointer
  }
  other(by) {
    const {run} = this;
    moveTo(state.position, run.rows[clamp(run.rowAt(state.at) + by, 0, run.rows.length - 1)].begin);
  }
  drawBase() {
    const {run} = this, rows = run.rows.length, narrow = window.innerWidth < 640;
    this.box.style.height = `${clamp(rows * 18, 90, narrow ? 260 : 400) + AXIS}px`;
    const pen = this.fit(), plot = this.plot = this.height - AXIS;
    this.gutter = this.width > 520 ? 132 : 34;
    this.rowHeight = Math.min(Math.max(18, plot / rows), plot / rows * state.zoom);
    this.top = clamp(this.top, 0, Math.max(0, rows - plot / this.rowHeight));
    const x0 = Math.round(this.gutter * this.scale), w = this.canvases[0].width - x0, h = Math.round(plot * this.scale);
    if (w > 0) pen.putImageData(this.picture(pen.createImageData(w, h)), x0, 0);
    pen.fillStyle = colour("--muted");
    const every = Math.ceil(14 / this.rowHeight);
    for (let r = Math.ceil(this.top / every) * every; r < rows; r += every) {
      const row = run.rows[r], y = (r + .5 - this.top) * this.rowHeight, {begin, segment} = row;
      const name = row.open ? "open" : this.gutter > 99 ? run.textOf(row, 18) : `${segment < 0 ? begin : segment}`;
      if (y < plot) pen.fillText(name, 2, Math.max(7, y), this.gutter - 6);
    }
    const unit = 10 ** Math.floor(Math.log10(visible())), tick = Math.max(1, visible() / unit > 4 ? unit : unit / 2);
    for (let at = Math.ceil(state.left / tick) * tick; at < state.left + visible(); at += tick) {
      if (this.xOf(at) + 30 < this.width) pen.fillText(`${Math.round(at)}`, this.xOf(at), plot + AXIS / 2 + 2);
    }
  }
  // Fills an image: in each pixel the most that is chosen in its rows and columns; or else the most that is read, as
  // pinned if some of it is.
  picture(image) {
    const {run} = this, {width: w, height: h} = image, pixels = new Uint32Array(image.data.buffer);
    const names = ["--line", "--read", "--pinned", "--chosen"];
    const [back, read0, pinned0, chosen0] = names.map((name) => {  // red in the lowest byte
      const rgb = parseInt(colour(name).slice(1), 16);
      return (rgb & 255) << 16 | rgb & 0xff00 | rgb >> 16;
    });
    const each = visible() / w, source = each / run.grid.stride > MIP ? run.coarse : run.fine;
    const {width, read, pinned, chosen} = source, grain = source === run.coarse ? MIP : 1;
    const at = (x) => Math.floor(run.columnOf(Math.floor(state.left + x * each)) / grain);
    const from = Int32Array.from({length: w}, (_, x) => Math.max(0, at(x)));
    const to = Int32Array.from({length: w}, (_, x) => (state.left + x * each < run.tokens ? at(x + 1 - 1e-6) + 1 : 0));
    const tall = this.rowHeight * this.scale, gap = tall >= 5 ? 1 : 0;
    for (let y = 0, next; y < h; y = next) {  // lines that show the same rows are alike
      const row = Math.floor(this.top + y / tall);
      const end = clamp(Math.floor(this.top + (y + 1) / tall), row + 1, run.rows.length);
      next = clamp(Math.ceil((row + 1 - this.top) * tall), y + 1, h);
      for (let x = 0; x < w; ++x) {
        let some = 0, kept = 0, most = 0;
        for (let r = row; r < end; ++r) {
          for (let i = r * width + from[x]; i < r * width + to[x]; ++i) {
            if (chosen[i] > most) most = chosen[i];
            if (read[i] > some) some = read[i];
            if (pinned[i] > kept) kept = pinned[i];
          }
        }
        const shade = most > 0 ? 75 + .7 * most : kept > 0 ? 75 + .6 * kept : some > 0 ? 40 + .6 * some : 0;
        pixels[y * w + x] = (most > 0 ? chosen0 : kept > 0 ? pinned0 : read0) | Math.round(shade) << 24;
      }
      for (let copy = y + 1; copy < next; ++copy) pixels.copyWithin(copy * w, y * w, y * w + w);
      if (gap) pixels.fill(back | 128 << 24, (next - 1) * w, next * w);
    }
    return image;
  }
  drawCursor(reveal, follow) {
    const r = this.run.rowAt(state.at);
    if (reveal && (r < this.top || r + 1 > this.top + this.plot / this.rowHeight)) {
      this.top = Math.max(0, r - this.plot / this.rowHeight / 2);
      this.drawBase();
    }
    const pen = this.overlay(), x = this.xOf(state.position), y = (r - this.top) * this.rowHeight;
    if (x >= this.gutter - 1 && x < this.width)
      pen.strokeRect(x + .5, .5, Math.max(1, this.xOf(state.position + 1) - x - 1), this.plot - 1);
    if (y >= 0 && y < this.plot) pen.strokeRect(.5, y + .5, this.width - 1, Math.max(2, this.rowHeight - 1));
    this.drawText(r, follow);
    this.describe(r);
  }
  // A piece that is not closed yet is open, as far as it is there. A colour is as strong as the timeline's: by the share
  // of the lanes.
  drawText(r, follow) {
    const {run, spans, text} = this, {read, pinned, chosen} = run.fine, {position} = state;
    const column = run.columnOf(position), step = run.stepOf(position), open = spans.length - 1;
    run.rows.forEach((row, i) => {
      const at = (step < row.since ? open : i) * run.columns + column, there = column >= 0 && row.begin <= position;
      const kind = !there ? 0 : chosen[at] > 0 ? 3 : pinned[at] > 0 ? 4 : read[at] > 170 ? 2 : read[at] > 0 ? 1 : 0;
      const shade = Math.max(1, Math.round(SHADES * (kind === 3 ? chosen[at] : read[at]) / 255));
      const kinds = `k${kind}${kind ? ` s${shade}` : ""}${i === r ? " at" : ""}`;
      if (kinds !== this.kinds[i]) spans[i].className = this.kinds[i] = kinds;
    });
    const token = Math.min(position, run.tokens - 1), row = run.rows[run.rowAt(token)];
    const node = spans[run.rowAt(token)].firstChild;
    const places = [token, token + 1, row.end].map((at) => run.starts[at] - run.starts[row.begin]);
    this.ranges = [0, 1].map((i) => {
      const range = new Range();
      range.setStart(node, places[i]), range.setEnd(node, places[i + 1]);
      return range;
    });
    ["token", "later"].forEach((name, i) => window.Highlight &&
      CSS.highlights.set(name, new Highlight(...shown().flatMap((view) => (view.ranges ? [view.ranges[i]] : [])))));
    if (!follow) return;
    const box = text.getBoundingClientRect(), place = (state.crossed ? spans[r] : this.ranges[0]).getBoundingClientRect();
    const line = Math.min(place.height, 28), middle = place.top + line / 2 - box.top - box.height / 2;
    if (Math.abs(middle) > box.height / 2 - 1.5 * line) text.scrollTop += middle;
  }
  // In words what is known of a segment.
  describe(r) {
    const {run} = this, {lanes} = run, row = run.rows[r], step = run.stepOf(state.position), lines = [];
    const of = (count) => (count === lanes.length ? "all" : `${count} of ${lanes.length}`) + " KV heads";
    if (row.begin > state.position) lines.push("It comes later.");
    else if (step < row.since) lines.push("It is not closed yet: part of the open text.");
    else if (step >= 0) {
      const counts = run.grid.count(lanes, row.id, step);
      const says = [[counts[6] + counts[7], "chosen in"], [counts[3], "read whole without a choice in"],
        [counts[2], "read in part in"], [counts[1], "its summary alone read in"], [counts[0], "not read in"]];
      lines.push(`${says.filter(([count]) => count > 0).map(([count, what]) => `${what} ${of(count)}`).join(", ")}.`);
      run.pinnedAt(row, step).forEach((count, role) => {
        const part = count < row.end - row.begin ? `${count} of its tokens: pinned` : "Pinned";
        if (count > 0) lines.push(role ? `${part}, until another question.` : `${part}.`);
      });
      const votes = run.choices && row.segment >= 0 ? run.votes(row.segment, step) : {rows: 0};
      const best = votes.named && `Best ${UNITS[run.choices.unit]}: ${+votes.best.toPrecision(4)}`;
      if (best) lines.push(`${best}; named in ${votes.named} of the last ${votes.rows} choices.`);
      else if (votes.rows) lines.push("Not among the first of the last choice.");
      if (votes.agreeing) lines.push(`Agreeability: ${(votes.agreeability / votes.agreeing).toFixed(3)}.`);
      const here = run.here && !row.open && run.here.count(lanes, row.id, step);
      if (here) lines.push(`In memory: whole for ${of(here[2])}` + (here[1] ? `, in part for ${here[1]}.` : "."));
    }
    const name = row.open ? "Open text" : row.segment >= 0 ? `Segment ${row.segment}` : "Text";
    const where = row.end > row.begin ? `, tokens ${row.begin} – ${row.end - 1}` : "";
    this.detail.replaceChildren(make("p", {}, make("b", {}, name), where), make("p", {}, lines.join(" ")),
      make("p", {}, make("q", {}, run.textOf(row, 160))));
  }
}

class Chart extends Plot {
  constructor(title, values, format = (value) => `${+value.toPrecision(4)}`) {
    super(`${title}, over the tokens`);
    Object.assign(this, {values, format, said: make("p")});
    this.card = make("figure", {class: "chart"}, make("h3", {}, title), this.box, this.said);
    this.most = values.reduce((most, of) => (of || []).reduce((a, b) => (b > a ? b : a), most), 0);
  }
  each(visit) { runs.forEach((run, r) => this.values[r] && !views[r].card.hidden && visit(run, r, this.values[r])); }
  draw(all) {
    if (all) this.drawLines();
    const pen = this.overlay(), x = this.xOf(state.position + .5);
    pen.strokeRect(Math.round(x) - .5, 0, 0, this.height), this.said.replaceChildren();
    this.each((run, r, of) => {
      const step = run.stepOf(state.position), value = of[Math.max(0, Math.floor(step / run.series.stride))];
      this.said.append(make("span", {style: `color: var(--run${r % 6})`}, `${run.policy} `),
        make("b", {}, step < 0 || !Number.isFinite(value) ? "–" : this.format(value)), "  ");
    });
  }
  drawLines() {
    const pen = this.fit(), yOf = (value) => this.height - 6 - value / (this.most || 1) * (this.height - 12);
    pen.strokeStyle = colour("--line");
    for (const share of [0, .5, 1]) pen.strokeRect(0, Math.round(yOf(share * this.most)) + .5, this.width, 0);
    this.each((run, r, of) => {
      const xs = (i) => Math.floor(this.xOf(run.position[i * run.series.stride] + .5));
      pen.strokeStyle = colour(`--run${r % 6}`), pen.lineWidth = 1.5;
      pen.setLineDash(DASHES[r % DASHES.length]), pen.beginPath();
      for (let i = 0, end; i < of.length; i = end) {  // a pixel at a time
        let low = of[i], high = of[i];
        for (end = i + 1; end < of.length && xs(end) === xs(i); ++end)
          low = Math.min(low, of[end]), high = Math.max(high, of[end]);
        if (Number.isFinite(low)) pen.lineTo(xs(i), yOf(low)), pen.lineTo(xs(i), yOf(high));
      }
      pen.stroke();
    });
    pen.fillStyle = colour("--muted"), pen.fillText(this.format(this.most), 2, 15);
  }
}

// Where the words that are looked for are, in the text of the first run that is shown.
const search = {words: "", run: null, places: [], number: -1};
function find(by) {
  const words = byId("find").value, run = (shown()[0] || views[0]).run;
  if (words !== search.words || run !== search.run) {
    const text = run.words.join(""), sought = words && new RegExp(words.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&"), "gi");
    const places = sought ? [...text.matchAll(sought)].map((match) => match.index) : [];
    Object.assign(search, {words, run, places, number: -1});
    mark();
  }
  const {places} = search;
  if (places.length > 0) {
    search.number = (Math.max(search.number, by < 0 ? 0 : -1) + by + places.length) % places.length;
    let low = 0, high = run.tokens;  // the token at a place of the text
    while (low + 1 < high) {
      const middle = (low + high) >> 1;
      run.starts[middle] <= places[search.number] ? low = middle : high = middle;
    }
    state.pinned = true, state.at = -1;  // the cross goes there, even to where it is
    moveTo(Math.max(state.position, low), low);
  }
  byId("found").textContent = !words ? "" : places.length ? `${search.number + 1} of ${places.length}` : "not there";
}
// Marks them in all texts that are the same.
function mark() {
  const {words, run, places} = search;
  const ranges = views.filter((view) => view.run.words === run.words).flatMap((view) =>
    places.slice(0, FOUND).map((place) => {
      const range = new Range();
      view.setPoint(range, "setStart", place), view.setPoint(range, "setEnd", place + words.length);
      return range;
    }));
  if (window.Highlight) CSS.highlights.set("found", new Highlight(...ranges));
}

// What each has written, and how far it is what the first one has.
function addAnswers() {
  const own = runs.filter((run) => !run.given), [compared] = own.length ? own : runs;
  const text = (run) => run.words.slice(run.prompt).join("");
  const others = runs.some((run) => run.given) ? runs.filter((run) => run.given && run !== compared) : [];
  for (const run of own.length ? own : [compared]) {
    const answer = text(run), whole = text(compared);
    let same = 0;
    while (same < answer.length && answer[same] === whole[same]) ++same;
    if (answer.charCodeAt(same) >> 10 === 55) --same;  // not within a surrogate pair
    const differs = run !== compared && same < Math.max(answer.length, whole.length);
    const said = make("div", {class: "answer", tabindex: "0", role: "region", "aria-label": `Answer of ${run.policy}`},
      ...(differs ? [answer.slice(0, same), make("mark", {}, answer.slice(same))] : [answer]));
    const note = run === compared ? "" : !differs ? `as ${compared.policy}` : answer.slice(0, same).trim()
      ? `as ${compared.policy} at first` : `other than ${compared.policy}`;
    byId("answers").append(make("article", {}, make("h3", {}, own.length ? run.policy : "The recorded text"),
      ...(note ? [make("p", {class: "sub"}, note)] : []), said));
  }
  byId("same").textContent = !others.length ? "" : own.length
    ? `All others pass this text too, so that columns are comparable; what they would have written is in the figures.`
    : `All policies pass the recorded text.`;
}
function addFigures() {
  const most = [...runs].sort((a, b) => b.figures.length - a.figures.length);  // in whose order they stand
  const names = [...new Set(most.flatMap((run) => run.figures.map(([name]) => name)))];
  const cells = (run) => names.map((name) => make("td", {}, new Map(run.figures).get(name) ?? "–"));
  byId("figures").append(
    make("thead", {}, make("tr", {}, ...["Policy", ...names].map((name) => make("th", {scope: "col"}, name)))),
    make("tbody", {}, ...runs.map((run) => make("tr", {}, make("th", {scope: "row"}, run.policy), ...cells(run)))));
  byId("command").textContent = data.command;
}
function addCharts() {
  for (const [title, needed, value, format] of METRICS) {
    const of = runs.map((run) => {
      const {series, steps} = run, {stride} = series;
      if (!series[needed]) return null;
      let known = NaN;
      return Float64Array.from(series[needed], (_, i) => {
        const now = value((name) => (series[name] ? series[name][i] : 0), Math.min(stride, steps - i * stride), run);
        return known = Number.isFinite(now) ? now : known;
      });
    });
    if (of.some(Boolean)) charts.push(new Chart(title, of, format));
  }
  byId("charts").append(...charts.map((chart) => chart.card));
  byId("lines").innerHTML = runs.map((_, r) => `<li><svg viewBox="0 0 32 10" aria-hidden="true"><path d="M0 5h32"
    stroke="var(--run${r % 6})" stroke-width="2" stroke-dasharray="${DASHES[r % DASHES.length]}"/></svg></li>`).join("");
  byId("lines").querySelectorAll("li").forEach((line, r) => line.append(runs[r].policy));
}
function addControls() {
  const fill = (id, values) => {
    byId(id).append(make("option", {value: -1}, "all"), ...values.map((value) => make("option", {value}, value)));
    byId(id).onchange = (event) => { state[id] = Number(event.target.value); redraw({lanes: true}); };
  };
  fill("layer", runs[0].layers), fill("head", Array.from({length: runs[0].kv_heads}, (_, head) => head));
  byId("in").onclick = () => zoom(1.6), byId("out").onclick = () => zoom(1 / 1.6), byId("fit").onclick = () => zoom(0);
  byId("later").onclick = () => change(1), byId("earlier").onclick = () => change(-1);
  Object.assign(byId("step"), {min: first, max: last - 1});
  byId("step").oninput = (event) => { state.pinned = true; moveTo(Number(event.target.value)); };
  for (const view of views.length > 1 ? views : []) {
    const box = make("input", {type: "checkbox", checked: ""});
    box.onchange = () => { view.card.hidden = !box.checked; redraw({lanes: true}); };
    byId("shown").append(make("label", {}, box, ` ${view.run.policy}`));
  }
  byId("find").oninput = () => find(1);
  byId("find").onkeydown = (event) => { if (event.key === "Enter") find(event.shiftKey ? -1 : 1); };
  byId("next").onclick = () => find(1), byId("previous").onclick = () => find(-1);
  for (const media of ["(prefers-color-scheme: dark)", "print"]) matchMedia(media).onchange = () => pan(0);
  new ResizeObserver(() => pan(0)).observe(byId("runs"));
}

const data = JSON.parse(byId("data").textContent);
function start() {
  document.title = byId("title").textContent = data.title;
  runs = data.runs.map((raw) => new Run(raw, data.texts[raw.text]));
  first = Math.min(...runs.map((run) => run.prompt)), last = Math.max(first + 1, ...runs.map((run) => run.tokens));
  byId("lead").textContent = `${runs.length === 1 ? "One policy" : `${runs.length} policies`}, a prompt of ` +
    `${runs[0].prompt} tokens, ${last - first} after it` +
    `${data.texts.length > 1 ? "; each policy wrote its own" : runs.some((run) => run.given) ? ", the same for all" : ""}.`;
  views = runs.map((run) => new View(run));
  byId("runs").append(...views.map((view) => view.card));
  const read = Math.max(first, Math.min(...runs.map((run) => run.tokens)) - 1);  // the last token that all have
  Object.assign(state, {left: first, position: read, at: read});
  addFigures(), addAnswers(), addCharts(), addControls();
  redraw({lanes: true, follow: true});
}
requestAnimationFrame(() => setTimeout(start));  // what needs no data is painted before
