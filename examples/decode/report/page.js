// SPDX-License-Identifier: Apache-2.0
// Draws the data of the page (docs/report.md): a timeline, the text and its state for each run, charts for all.
"use strict";

const MIP = 8;  // columns of the coarse copy of a picture
const byId = (id) => document.getElementById(id);
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const rgb = (name) => [1, 3, 5].map((at) => parseInt(colour(name).slice(at, at + 2), 16));
function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in made && typeof value !== "string") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}
function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let at = 0;
  for (; Math.abs(bytes) >= 1024 && at < 3; ++at) bytes /= 1024;
  return `${at > 0 && bytes < 100 ? bytes.toFixed(1) : Math.round(bytes)} ${units[at]}`;
}

// Levels of pieces over time, by classes of lanes that are alike.
class Grid {
  constructor(raw, steps, pieces) {
    Object.assign(this, raw);
    this.columns = Math.ceil(steps / raw.stride);
    this.starts = raw.classes.map((numbers) => {  // where a piece's runs are
      const starts = new Int32Array(pieces).fill(-1);
      for (let at = 0; at < numbers.length; at += 2 + 3 * numbers[at + 1]) starts[numbers[at]] = at;
      return starts;
    });
  }
  // [class, how many of these lanes have it]
  weights(lanes) {
    const counts = new Map();
    for (const lane of lanes) counts.set(this.lanes[lane], (counts.get(this.lanes[lane]) || 0) + 1);
    return [...counts];
  }
  each(classId, piece, visit) {  // visit(first column, last column, level)
    const numbers = this.classes[classId];
    let at = this.starts[classId][piece];
    if (at < 0) return;
    let column = 0;
    for (const end = at + 2 + 3 * numbers[at + 1], from = (at += 2); at < end; at += 3) {
      column += numbers[at];
      visit(column, column + numbers[at + 1], numbers[at + 2]);
      column += numbers[at + 1];
    }
  }
  // How many of the lanes have each level at a step.
  count(lanes, piece, step) {
    const counts = new Array(8).fill(0), column = Math.floor(step / this.stride);
    for (const [classId, weight] of this.weights(lanes)) {
      let found = 0;
      this.each(classId, piece, (first, last, level) => { if (first <= column && column < last) found = level; });
      counts[found] += weight;
    }
    return counts;
  }
}

class Run {
  constructor(raw, texts) {
    Object.assign(this, raw);
    this.words = texts[raw.text];
    this.starts = new Int32Array(this.words.length + 1);  // of tokens in the text, in UTF-16 units
    this.words.forEach((word, t) => { this.starts[t + 1] = this.starts[t] + word.length; });
    this.rows = [];  // as they are shown: the open text last
    for (let at = 0; at < raw.pieces.length; at += 5) {
      const [begin, split, end, since, segment] = raw.pieces.slice(at, at + 5);
      this.rows.push({id: at / 5, begin, split, end, since, segment});
    }
    const open = this.rows.shift(), covered = this.rows.length ? this.rows[this.rows.length - 1].end : 0;
    this.rows.push({...open, begin: covered, split: raw.tokens, end: raw.tokens, open: true});
    this.rowOf = new Int32Array(raw.tokens + 1).fill(this.rows.length - 1);
    this.rows.forEach((row, r) => { if (!row.open) this.rowOf.fill(r, row.begin, row.end); });
    this.bySegment = new Map(this.rows.filter((row) => row.segment >= 0).map((row) => [row.segment, row]));
    this.position = new Int32Array(raw.steps);
    this.step = new Int32Array(raw.tokens + 1).fill(-1);
    for (let at = 0, step = 0; at < raw.positions.length; at += 2) {
      for (let i = 0; i < raw.positions[at + 1]; ++i, ++step) {
        this.position[step] = raw.positions[at] + i;
        this.step[raw.positions[at] + i] = step;
      }
    }
    this.grid = new Grid(raw.levels, raw.steps, raw.pieces.length / 5);
    this.here = raw.on_device && new Grid(raw.on_device, raw.steps, raw.pieces.length / 5);
    this.byRow = new Map();  // choices
    for (const made of raw.choices ? raw.choices.list : []) {
      if (!this.byRow.has(made[1])) this.byRow.set(made[1], []);
      this.byRow.get(made[1]).push(made);
    }
  }
  stepAt(position) {  // the last one at or before it
    for (let at = clamp(position, 0, this.tokens); at >= this.prompt; --at) if (this.step[at] >= 0) return this.step[at];
    return -1;
  }
  lanesOf(layer, head) {
    const lanes = [];
    this.layers.forEach((name, l) => {
      for (let h = 0; h < this.kv_heads; ++h) {
        if ((layer < 0 || name === layer) && (head < 0 || h === head)) lanes.push(l * this.kv_heads + h);
      }
    });
    return lanes;
  }
  // The picture of some lanes: of each row and column what share of them reads, and has chosen, as bytes.
  show(layer, head) {
    this.lanes = this.lanesOf(layer, head);
    const columns = this.columns = this.grid.columns, coarse = Math.ceil(columns / MIP), rows = this.rows.length;
    this.read = new Uint8Array(rows * columns), this.chosen = new Uint8Array(rows * columns);
    this.coarseRead = new Uint8Array(rows * coarse), this.coarseChosen = new Uint8Array(rows * coarse);
    this.changed = new Uint8Array(columns);
    const weights = this.grid.weights(this.lanes), all = Math.max(1, this.lanes.length);
    const read = new Int32Array(columns + 1), chosen = new Int32Array(columns + 1);
    this.rows.forEach((row, r) => {
      read.fill(0), chosen.fill(0);
      for (const [classId, weight] of weights) {
        this.grid.each(classId, row.id, (first, last, level) => {
          read[first] += weight * (level & 3), read[last] -= weight * (level & 3);
          if (level & 4) chosen[first] += weight, chosen[last] -= weight;
        });
      }
      for (let c = 0, reads = 0, chooses = 0, at = r * columns; c < columns; ++c, ++at) {
        if (chosen[c] !== 0) this.changed[c] = 1;
        reads += read[c], chooses += chosen[c];
        this.read[at] = reads === 0 ? 0 : Math.max(1, Math.round(255 * reads / (3 * all)));
        this.chosen[at] = chooses === 0 ? 0 : Math.max(64, Math.round(255 * chooses / all));
        const of = r * coarse + Math.floor(c / MIP);
        this.coarseRead[of] = Math.max(this.coarseRead[of], this.read[at]);
        this.coarseChosen[of] = Math.max(this.coarseChosen[of], this.chosen[at]);
      }
    });
  }
  columnAt(position) { const step = this.stepAt(position); return step < 0 ? -1 : Math.floor(step / this.grid.stride); }
  textOf(row, most) {
    const text = this.words.slice(row.begin, row.end).join("").replace(/\s+/g, " ").trim();
    return text.length > most ? text.slice(0, most - 1) + "…" : text;
  }
  // The rows of the selection that the shown lanes read.
  selectionRows() {
    if (this.per === "sequence") return [0];
    if (this.per === "layer") return [...new Set(this.lanes.map((lane) => Math.floor(lane / this.kv_heads)))];
    if (this.per === "kv_head") return this.lanes;
    return this.lanes.flatMap((lane) => Array.from({length: this.group}, (_, i) => lane * this.group + i));
  }
  // What the last choices before a step say of a segment.
  votes(segment, step) {
    const found = {rows: 0, named: 0, best: null, agreeability: 0, agreeing: 0, since: -1};
    for (const row of this.selectionRows()) {
      const made = (this.byRow.get(row) || []).findLast((one) => one[0] <= step);
      if (!made) continue;
      ++found.rows, found.since = Math.max(found.since, made[0]);
      if (made[2] >= 0) found.agreeability += made[2] / 1e4, ++found.agreeing;
      for (let at = 4; at < made.length; at += 2) {
        if (made[at] !== segment) continue;
        ++found.named;
        if (found.best === null || made[at + 1] > found.best) found.best = made[at + 1];
      }
    }
    return found;
  }
}

const data = JSON.parse(byId("data").textContent);
let runs = [], views = [], charts = [];
const state = {layer: -1, head: -1, position: 0, at: 0, zoom: 1, left: 0, pinned: false};
let first = 0, last = 1, wanted = {lanes: false, base: false, cursor: false}, scheduled = 0;

function redraw(what) {
  Object.assign(wanted, what);
  if (scheduled) return;
  scheduled = requestAnimationFrame(() => {
    scheduled = 0;
    const now = wanted;
    wanted = {lanes: false, base: false, cursor: false};
    const shown = views.filter((view) => !view.card.hidden);
    if (now.lanes) for (const view of shown) view.run.show(state.layer, state.head);
    for (const view of shown) {
      if (now.lanes || now.base) view.drawBase();
      view.drawCursor(now.reveal);
    }
    for (const chart of charts) chart.draw(now.lanes || now.base);
    showWhere();
  });
}
const visible = () => (last - first) / state.zoom;
function zoom(factor, around = state.position + .5) {
  const before = visible(), share = clamp((around - state.left) / before, 0, 1);
  state.zoom = clamp(state.zoom * factor, 1, Math.max(1, (last - first) / 16));
  pan(around - share * visible() - state.left);
}
function pan(by) {
  state.left = clamp(state.left + by, first, last - visible());
  redraw({base: true});
}
// @param reveal  the text of the token is scrolled to, and the timeline
function moveTo(position, at, reveal = true) {
  state.position = clamp(Math.round(position), first, last - 1);
  if (at !== undefined) state.at = at;
  if (reveal && (state.position < state.left || state.position >= state.left + visible()))
    pan(state.position - visible() / 2 - state.left);
  redraw({cursor: true, reveal});
}

// A canvas with another one over it for what follows the pointer.
class Plot {
  constructor(label) {
    this.base = make("canvas"), this.over = make("canvas");
    this.box = make("div", {class: "plot", tabindex: "0", role: "application", "aria-label": label}, this.base, this.over);
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("pointermove", (event) => {
      if (this.drag && event.buttons && state.zoom > 1) {
        pan((this.drag - event.clientX) / this.width * visible());
        this.drag = event.clientX;
      } else if (!state.pinned) {
        this.point(event);
      }
    });
    this.box.addEventListener("pointerdown", (event) => { this.drag = this.down = event.clientX; });
    this.box.addEventListener("pointerup", (event) => {
      this.drag = 0;
      if (Math.abs(event.clientX - this.down) > 3) return;
      state.pinned = !state.pinned;
      this.point(event);
    });
    this.box.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey) return;
      event.preventDefault();
      if (event.ctrlKey) zoom(Math.exp(-event.deltaY / 300), this.positionAt(event));
      else pan((event.deltaX || event.deltaY) / this.width * visible());
    }, {passive: false});
  }
  positionAt(event) {
    const box = this.box.getBoundingClientRect();
    return state.left + clamp((event.clientX - box.left - this.gutter) / (box.width - this.gutter), 0, .99999) * visible();
  }
  fit(height) {
    this.scale = Math.min(2, window.devicePixelRatio || 1);
    if (height) this.box.style.height = `${height}px`;
    this.width = this.box.clientWidth, this.height = height || this.box.clientHeight;
    for (const canvas of [this.base, this.over]) {
      const w = Math.round(this.width * this.scale), h = Math.round(this.height * this.scale);
      if (canvas.width !== w || canvas.height !== h) canvas.width = w, canvas.height = h;
      const pen = canvas.getContext("2d");
      pen.setTransform(this.scale, 0, 0, this.scale, 0, 0);
      pen.clearRect(0, 0, this.width, this.height);
    }
    return this.base.getContext("2d");
  }
  xOf(position) { return this.gutter + (position - state.left) / visible() * (this.width - this.gutter); }
  key(event) {
    const far = event.shiftKey ? 10 : 1;
    const act = {
      ArrowLeft: () => moveTo(state.position - far), ArrowRight: () => moveTo(state.position + far),
      ArrowUp: () => this.other(-far), ArrowDown: () => this.other(far),
      Home: () => moveTo(first), End: () => moveTo(last - 1),
      "+": () => zoom(1.6), "=": () => zoom(1.6), "-": () => zoom(1 / 1.6), 0: () => zoom(1e-9),
      n: () => change(1), p: () => change(-1), Escape: () => { state.pinned = false; },
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    if (event.key !== "Escape") state.pinned = true;
    act();
  }
  other() {}
}

class View extends Plot {
  constructor(run, index) {
    super(`Timeline of ${run.policy}: arrow keys move through tokens and segments`);
    this.run = run, this.top = 0;
    const per = {sequence: "one choice for all layers", layer: "a choice for each layer", kv_head: "a choice for each KV head",
      head: "a choice for each head"}[run.per] || "nothing is chosen";
    const stride = run.levels.stride > 1 ? ` · a column is ${run.levels.stride} tokens` : "";
    this.detail = make("div", {class: "detail", "aria-live": "polite"});
    this.text = make("div", {class: "text", tabindex: "0", role: "application", "aria-label": `Text under ${run.policy}`});
    this.card = make("article", {class: "run", "aria-label": run.policy}, make("h3", {}, run.policy),
      make("p", {class: "sub"}, `${run.rows.length - 1} ${run.bySegment.size ? "segments" : "pieces of text"} · ${per}${stride}`),
      this.box, this.detail, this.text,
      make("details", {}, make("summary", {}, "Options"), make("pre", {}, run.options)));
    this.spans = run.rows.map((row, r) => {
      const span = make("span", {style: `--hue: var(--run${r % 6})`}, run.words.slice(row.begin, row.end).join(""));
      span.row = r;
      return span;
    });
    this.kinds = new Uint8Array(run.rows.length);
    this.text.append(...this.spans);
    this.text.addEventListener("keydown", (event) => this.key(event));
    this.text.addEventListener("pointermove", (event) => { if (!state.pinned) this.pointText(event); });
    this.text.addEventListener("click", (event) => { state.pinned = !state.pinned; this.pointText(event); });
  }
  point(event) {
    const box = this.box.getBoundingClientRect(), run = this.run;
    const row = run.rows[clamp(Math.floor(this.top + (event.clientY - box.top) / this.rowHeight), 0, run.rows.length - 1)];
    moveTo(Math.floor(this.positionAt(event)), row.begin);
  }
  pointText(event) {
    const place = document.caretPositionFromPoint ? document.caretPositionFromPoint(event.clientX, event.clientY)
                                                  : document.caretRangeFromPoint(event.clientX, event.clientY);
    const node = place && (place.offsetNode || place.startContainer), span = node && node.parentNode;
    if (!span || span.row === undefined) return;
    const {starts, rows, prompt} = this.run, row = rows[span.row];
    const at = starts[row.begin] + (place.offset === undefined ? place.startOffset : place.offset);
    let token = row.begin;
    while (token + 1 < row.end && starts[token + 1] <= at) ++token;
    if (token >= prompt) moveTo(token, token, false);
    else moveTo(state.position, token, false);
  }
  other(by) {
    const rows = this.run.rows, row = clamp(this.run.rowOf[clamp(state.at, 0, this.run.tokens)] + by, 0, rows.length - 1);
    moveTo(state.position, rows[row].begin);
  }
  drawBase() {
    const run = this.run, rows = run.rows.length, most = window.innerWidth < 640 ? 260 : 400;
    const pen = this.fit(clamp(rows * 18, 90, most));
    this.gutter = this.width > 560 ? 132 : 30;
    this.rowHeight = Math.min(Math.max(18, this.height / rows), this.height / rows * state.zoom);
    this.top = clamp(this.top, 0, Math.max(0, rows - this.height / this.rowHeight));
    const w = Math.round((this.width - this.gutter) * this.scale), h = this.base.height;
    const picture = pen.createImageData(w, h), pixels = new Uint32Array(picture.data.buffer);
    const back = rgb("--panel"), read = rgb("--read"), chosen = rgb("--chosen"), line = rgb("--line");
    const mix = (a, b, share) => a.map((value, i) => value + (b[i] - value) * share);
    const word = ([r, g, b]) => 0xff000000 | (Math.round(b) << 16) | (Math.round(g) << 8) | Math.round(r);
    const reads = Array.from({length: 256}, (_, i) => word(mix(back, read, i === 0 ? 0 : .15 + .6 * i / 255)));
    const chooses = Array.from({length: 256}, (_, i) => word(mix(back, chosen, .25 + .75 * i / 255)));
    const from = new Int32Array(w), to = new Int32Array(w), each = visible() / w, stride = run.grid.stride;
    const coarse = each / stride > MIP, grain = coarse ? MIP : 1, columns = coarse ? Math.ceil(run.columns / MIP) : run.columns;
    for (let x = 0; x < w; ++x) {
      const begin = run.columnAt(Math.floor(state.left + x * each)), end = run.columnAt(Math.floor(state.left + (x + 1) * each - 1e-6));
      const inside = state.left + x * each < run.tokens && end >= 0;
      from[x] = inside ? Math.floor(Math.max(0, begin) / grain) : 0;
      to[x] = inside ? Math.floor(end / grain) + 1 : 0;
    }
    const ofRead = coarse ? run.coarseRead : run.read, ofChosen = coarse ? run.coarseChosen : run.chosen;
    const tall = this.rowHeight * this.scale, gap = tall >= 5 ? 1 : 0;
    for (let y = 0; y < h;) {  // lines that show the same rows are alike
      const row = Math.floor(this.top + y / tall), end = Math.max(row + 1, Math.floor(this.top + (y + 1) / tall));
      if (row >= rows) break;
      for (let x = 0; x < w; ++x) {
        let some = 0, most = 0;
        for (let r = row; r < end && r < rows; ++r) {
          for (let at = r * columns + from[x], stop = r * columns + to[x]; at < stop; ++at) {
            if (ofChosen[at] > most) most = ofChosen[at];
            if (ofRead[at] > some) some = ofRead[at];
          }
        }
        pixels[y * w + x] = most > 0 ? chooses[most] : reads[some];
      }
      const next = clamp(Math.ceil((row + 1 - this.top) * tall), y + 1, h);
      for (let copy = y + 1; copy < next - gap; ++copy) pixels.copyWithin(copy * w, y * w, y * w + w);
      if (gap) pixels.fill(word(mix(back, line, .55)), (next - 1) * w, next * w);
      y = next;
    }
    pen.putImageData(picture, Math.round(this.gutter * this.scale), 0);
    pen.fillStyle = colour("--muted"), pen.font = "12px system-ui, sans-serif", pen.textBaseline = "middle";
    const every = Math.ceil(14 / this.rowHeight);
    for (let r = Math.ceil(this.top / every) * every; r < rows; r += every) {
      const row = run.rows[r], y = (r + .5 - this.top) * this.rowHeight;
      const name = row.open ? "open" : this.gutter < 100 ? `${row.segment < 0 ? row.begin : row.segment}` : run.textOf(row, 18);
      if (y < this.height - 4) pen.fillText(name, 2, Math.max(7, y), this.gutter - 6);
    }
  }
  drawCursor(reveal) {
    const run = this.run, r = run.rowOf[clamp(state.at, 0, run.tokens)], pen = this.over.getContext("2d");
    if (reveal && (r < this.top || r >= this.top + this.height / this.rowHeight)) {
      this.top = Math.max(0, r - this.height / this.rowHeight / 2);
      this.drawBase();
    }
    pen.clearRect(0, 0, this.width, this.height);
    pen.strokeStyle = colour("--ink"), pen.lineWidth = 1;
    const x = this.xOf(state.position), wide = Math.max(1, this.xOf(state.position + 1) - x);
    if (x >= this.gutter - 1 && x < this.width) pen.strokeRect(x + .5, .5, wide, this.height - 1);
    pen.strokeRect(.5, Math.round((r - this.top) * this.rowHeight) + .5, this.width - 1, Math.max(2, this.rowHeight - 1));
    this.drawText(r, reveal);
    this.describe(r);
  }
  drawText(r, reveal) {
    const {run, spans} = this, column = run.columnAt(state.position);
    for (let i = 0; i < spans.length; ++i) {
      const at = i * run.columns + column, known = column >= 0;
      const kind = !known ? 0 : run.chosen[at] > 0 ? 3 : run.read[at] > 168 ? 2 : run.read[at] > 0 ? 1 : 0;
      const value = kind + (i === r ? 4 : 0);
      if (value === this.kinds[i]) continue;
      this.kinds[i] = value;
      spans[i].className = (kind ? `k${kind}` : "") + (i === r ? " at" : "");
    }
    const token = clamp(state.position, 0, run.tokens - 1), row = run.rows[run.rowOf[token]], node = spans[run.rowOf[token]].firstChild;
    if (!node) return;
    const range = new Range(), from = run.starts[token] - run.starts[row.begin];
    range.setStart(node, from), range.setEnd(node, from + run.words[token].length);
    View.tokens[views.indexOf(this)] = range;
    if (window.Highlight) CSS.highlights.set("token", new Highlight(...View.tokens.filter(Boolean)));
    if (!reveal) return;
    const box = this.text.getBoundingClientRect(), place = range.getBoundingClientRect();
    if (place.top < box.top || place.bottom > box.bottom) this.text.scrollTop += place.top - box.top - box.height / 2;
  }
  // In words what the state of a segment is.
  describe(r) {
    const run = this.run, row = run.rows[r], step = run.stepAt(state.position), lanes = run.lanes.length;
    const name = row.open ? "Open text" : row.segment >= 0 ? `Segment ${row.segment}` : "Text";
    const where = row.open ? "" : `, tokens ${row.begin} – ${row.end - 1}`;
    const counts = step < 0 ? [] : run.grid.count(run.lanes, row.id, step);
    const of = (count) => (count === lanes ? "all" : `${count} of ${lanes}`);
    const says = [];
    const chosen = (counts[6] || 0) + (counts[7] || 0);
    if (chosen) says.push(`chosen in ${of(chosen)} KV heads`);
    if (counts[3]) says.push(`read whole without a choice in ${of(counts[3])}`);
    if (counts[2]) says.push(`read in part in ${of(counts[2])}`);
    if (counts[1]) says.push(`its summary alone in ${of(counts[1])}`);
    if (counts[0]) says.push(`not read in ${of(counts[0])}`);
    const lines = [step < 0 ? "No token is written here: this is the prompt." : `${says.join(", ")}.`];
    if (row.segment >= 0 && step >= 0 && run.choices) {
      const votes = run.votes(row.segment, step), unit = {share: "share of the votes", score: "score", mass: "mass"}[run.choices.unit];
      if (votes.rows && votes.best !== null)
        lines.push(`Best ${unit}: ${+votes.best.toPrecision(4)}, named in ${votes.named} of ${votes.rows} choices.`);
      else if (votes.rows) lines.push("Not among the first of the last choice.");
      if (votes.agreeing) lines.push(`Agreeability: ${(votes.agreeability / votes.agreeing).toFixed(3)}.`);
    }
    if (this.run.here && !row.open && step >= 0) {
      const here = run.here.count(run.lanes, row.id, step);
      lines.push(`On the device: ${of(here[2])} KV heads${here[1] ? `, in part ${here[1]}` : ""}.`);
    }
    const quote = run.textOf(row, 160);
    const made = [make("p", {}, make("b", {}, name), where), make("p", {}, lines.join(" ")), make("p", {}, make("q", {}, quote))];
    const key = `${name}${where}${lines.join(" ")}`;
    if (this.said !== key) this.said = key, this.detail.replaceChildren(...made);
  }
}
View.tokens = [];

const METRICS = [
  ["Attended tokens, mean of a head", (s, r, n) => s.attended && ((i) => s.attended[i] / r.query_heads / n(i))],
  ["Captured attention mass", (s) => s.captured_count && ((i) => s.captured_sum[i] / s.captured_count[i])],
  ["Agreeability", (s) => s.agreeability_count && s.agreeability_sum && ((i) => s.agreeability_sum[i] / s.agreeability_count[i])],
  ["Entropy of the posterior, bits", (s) => s.entropy_count && ((i) => (s.entropy_sum ? s.entropy_sum[i] : 0) / s.entropy_count[i])],
  ["Segments zoomed into, a token", (s, r, n) => s.zooms && ((i) => s.zooms[i] / n(i))],
  ["Details: keys and values", (s) => s.details && ((i) => s.details[i]), size],
  ["Summaries and tables", (s) => (s.summaries || s.metadata) && ((i) => (s.summaries ? s.summaries[i] : 0) + (s.metadata ? s.metadata[i] : 0)), size],
  ["In host memory", (s) => s.host && ((i) => s.host[i]), size], ["In the file", (s) => s.file && ((i) => s.file[i]), size],
  ["Hits in the arena", (s) => s.hits && ((i) => s.hits[i] / (s.hits[i] + (s.misses ? s.misses[i] : 0)))],
  ["To the device, a token", (s, r, n) => s.device_in && ((i) => s.device_in[i] / n(i)), size],
  ["From the device, a token", (s, r, n) => s.device_out && ((i) => s.device_out[i] / n(i)), size],
  ["From the file, a token", (s, r, n) => s.file_in && ((i) => s.file_in[i] / n(i)), size],
];
const DASHES = [[], [7, 3], [2, 3], [9, 3, 2, 3], [4, 4], [12, 4]];

class Chart extends Plot {
  constructor(title, values, format = (value) => +value.toPrecision(4)) {
    super(`${title}, over the tokens`);
    this.values = values, this.format = format, this.gutter = 0;
    this.said = make("p");
    this.card = make("figure", {class: "chart", style: "margin: 0"}, make("h3", {}, title), this.box, this.said);
    this.most = 0;
    runs.forEach((run, r) => {
      for (let i = 0; values[r] && i < values[r].count; ++i) {
        const value = values[r].at(i);
        if (value > this.most) this.most = value;
      }
    });
  }
  point(event) { moveTo(Math.floor(this.positionAt(event)), undefined); }
  draw(all) {
    if (all || !this.width) this.drawLines();
    const pen = this.over.getContext("2d"), x = this.xOf(state.position + .5), parts = [];
    pen.clearRect(0, 0, this.width, this.height);
    pen.strokeStyle = colour("--ink");
    pen.beginPath(), pen.moveTo(x, 0), pen.lineTo(x, this.height), pen.stroke();
    runs.forEach((run, r) => {
      const step = run.stepAt(state.position), of = this.values[r];
      if (!of || step < 0 || views[r].card.hidden) return;
      const value = of.at(Math.floor(step / run.series.stride));
      const says = Number.isFinite(value) ? `${this.format(value)}` : "–";
      parts.push(make("span", {style: `color: var(--run${r % 6})`}, `${run.policy} `), make("b", {}, says), "  ");
    });
    this.said.replaceChildren(...parts);
  }
  drawLines() {
    const pen = this.fit(0), line = colour("--line");
    pen.strokeStyle = line, pen.lineWidth = 1;
    for (const share of [0, .5, 1]) {
      const y = Math.round(6 + share * (this.height - 12)) + .5;
      pen.beginPath(), pen.moveTo(0, y), pen.lineTo(this.width, y), pen.stroke();
    }
    const yOf = (value) => this.height - 6 - value / (this.most || 1) * (this.height - 12);
    runs.forEach((run, r) => {
      const of = this.values[r];
      if (!of || views[r].card.hidden) return;
      pen.strokeStyle = colour(`--run${r % 6}`), pen.lineWidth = 1.5, pen.setLineDash(DASHES[r % 6]);
      pen.beginPath();
      for (let i = 0, begun = false, cell = -1, low = 0, high = 0; i <= of.count; ++i) {  // a pixel at a time
        const value = i < of.count ? of.at(i) : NaN, position = i < of.count ? run.position[i * run.series.stride] + .5 : 0;
        const x = i < of.count ? Math.floor(this.xOf(position)) : -2;
        if (begun && x !== cell) pen.lineTo(cell, yOf(high)), pen.lineTo(cell, yOf(low)), cell = -1;
        if (!Number.isFinite(value)) continue;
        if (!begun) pen.moveTo(x, yOf(value)), begun = true;
        if (x !== cell) cell = x, low = high = value;
        low = Math.min(low, value), high = Math.max(high, value);
      }
      pen.stroke();
    });
    pen.setLineDash([]);
    pen.fillStyle = colour("--muted"), pen.font = "12px system-ui, sans-serif", pen.textBaseline = "top";
    pen.fillText(`${this.format(this.most)}`, 2, 8);
  }
}

function change(by) {
  const view = views.find((one) => !one.card.hidden && one.box.contains(document.activeElement)) || views.find((one) => !one.card.hidden);
  if (!view) return;
  const {run} = view, stride = run.grid.stride;
  for (let column = run.columnAt(state.position) + by; column >= 0 && column < run.columns; column += by) {
    if (run.changed[column]) return moveTo(run.position[column * stride]);
  }
}
function showWhere() {
  const run = (views.find((view) => !view.card.hidden) || views[0]).run, word = run.words[state.position];
  byId("step").value = state.position;
  byId("where").textContent = `${state.position} of ${last}` + (word === undefined ? "" : `: “${word.replace(/\s/g, "␣")}”`);
}
function addFigures() {
  const names = [...new Set(runs.flatMap((run) => run.figures.map(([name]) => name)))];
  const row = (tag, scope, cells) => make("tr", {}, make(tag, {scope}, cells[0]), ...cells.slice(1));
  byId("figures").append(
    make("thead", {}, row("th", "col", ["Policy", ...runs.map((run) => make("th", {scope: "col"}, run.policy))])),
    make("tbody", {}, ...names.map((name) => row("th", "row", [name, ...runs.map((run) =>
      make("td", {}, (run.figures.find(([known]) => known === name) || ["", "–"])[1]))]))));
  byId("command").textContent = data.command;
}
function addControls() {
  const numbers = (values) => [...new Set(values)].sort((a, b) => a - b);
  const fill = (id, values, name) => {
    byId(id).append(make("option", {value: "-1"}, "all"), ...values.map((v) => make("option", {value: `${v}`}, `${v}`)));
    byId(id).addEventListener("change", (event) => { state[name] = Number(event.target.value); redraw({lanes: true}); });
  };
  fill("layer", numbers(runs.flatMap((run) => run.layers)), "layer");
  fill("head", numbers(runs.flatMap((run) => Array.from({length: run.kv_heads}, (_, h) => h))), "head");
  byId("in").onclick = () => zoom(1.6), byId("out").onclick = () => zoom(1 / 1.6), byId("fit").onclick = () => zoom(1e-9);
  byId("later").onclick = () => change(1), byId("earlier").onclick = () => change(-1);
  Object.assign(byId("step"), {min: first, max: last - 1});
  byId("step").addEventListener("input", (event) => { state.pinned = true; moveTo(Number(event.target.value)); });
  views.forEach((view) => {
    const box = make("input", {type: "checkbox", checked: true});
    box.onchange = () => { view.card.hidden = !box.checked; redraw({lanes: true}); };
    if (views.length > 1) byId("shown").append(make("label", {}, box, ` ${view.run.policy}`));
  });
  const themes = ["auto", "light", "dark"];
  byId("theme").onclick = () => {
    const root = document.documentElement, next = themes[(themes.indexOf(root.dataset.theme || "auto") + 1) % 3];
    if (next === "auto") delete root.dataset.theme;
    else root.dataset.theme = next;
    byId("theme").textContent = `Theme: ${next}`;
    byId("theme").setAttribute("aria-label", `Colours: ${next === "auto" ? "of the system" : next}`);
    redraw({base: true});
  };
  for (const media of ["(prefers-color-scheme: dark)", "print"])
    matchMedia(media).addEventListener("change", () => redraw({base: true}));
  new ResizeObserver(() => redraw({base: true})).observe(byId("runs"));
}
function addCharts() {
  charts = METRICS.map(([title, values, format]) => {
    const of = runs.map((run) => {
      const {series, steps} = run, stride = series.stride, at = values(series, run, (i) => Math.min(stride, steps - i * stride));
      return at && {at, count: Math.ceil(steps / stride)};
    });
    return of.some(Boolean) && new Chart(title, of, format);
  }).filter(Boolean);
  byId("charts").append(...charts.map((chart) => chart.card));
  byId("lines").innerHTML = runs.map((_, r) => `<li><svg viewBox="0 0 32 10" aria-hidden="true"><path d="M0 5h32" fill="none"
    stroke="var(--run${r % 6})" stroke-width="2" stroke-dasharray="${DASHES[r % 6].join(" ")}"/></svg><span></span></li>`).join("");
  byId("lines").querySelectorAll("span").forEach((span, r) => { span.textContent = runs[r].policy; });
}
function start() {
  document.title = byId("title").textContent = data.title;
  runs = data.runs.map((raw) => new Run(raw, data.texts));
  first = Math.min(...runs.map((run) => run.prompt)), last = Math.max(first + 1, ...runs.map((run) => run.tokens));
  state.left = first, state.position = last - 1, state.at = last;
  byId("lead").textContent = `${runs.length === 1 ? "One policy" : `${runs.length} policies`}, a prompt of ${runs[0].prompt} tokens, ` +
    `${last - first} tokens after it${data.texts.length > 1 ? "; each policy has written its own text" : ""}.`;
  views = runs.map((run, index) => new View(run, index));
  byId("runs").append(...views.map((view) => view.card));
  addFigures(), addCharts(), addControls();
  for (const i of [0, 1, 2, 3, 4]) {
    const swatch = document.querySelector(`#legend .s${i}`);
    swatch.style.background = ["var(--panel)", "color-mix(in srgb, var(--read) 35%, var(--panel))",
      "color-mix(in srgb, var(--read) 55%, var(--panel))", "color-mix(in srgb, var(--read) 75%, var(--panel))", "var(--chosen)"][i];
  }
  redraw({lanes: true});
}
requestAnimationFrame(() => setTimeout(start));  // what needs no data is painted before
