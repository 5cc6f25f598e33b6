// A map of the files of a checkpoint: one cell each, drawn once; names come a thousand at a time when asked for.
"use strict";

const CELLS_AT_ONCE = 1000; // as pages/file_map.py gives them
const DWELL_MS = 80; // a pointer that only passes asks for nothing
const MAX_CELL_PX = 22;
const MIN_CELL_PX = 2;
const WANTED_HEIGHT_PX = 420;
const RING_PX = 7;
const SYMBOL_FROM_PX = 12; // cells of this size have room for a symbol of their own
const SYMBOLS = { m: "✗", f: "✗", d: "?", n: "!", u: "…" };
const GRAVE = "mfd"; // missing, faulty, in doubt: ringed, so that one among many is seen

/** Where each cell is drawn; sizes in CSS pixels. */
function gridOf(count, width) {
  const side = Math.sqrt((width * WANTED_HEIGHT_PX) / Math.max(1, count));
  const cell = Math.max(MIN_CELL_PX, Math.min(MAX_CELL_PX, Math.floor(side)));
  const columns = Math.max(1, Math.min(Math.max(1, count), Math.floor(width / cell)));
  return { cell, columns, rows: Math.ceil(count / columns) };
}

class CellDetails {
  constructor(address) {
    this.address = address;
    this.chunks = new Map();
  }

  /** Return what is known of a cell now: [path, size, rank, finding], or undefined. */
  known(index) {
    const chunk = this.chunks.get(Math.floor(index / CELLS_AT_ONCE));
    return Array.isArray(chunk) ? chunk[index % CELLS_AT_ONCE] : undefined;
  }

  /** Ask for the cells around one. */
  async load(index) {
    const number = Math.floor(index / CELLS_AT_ONCE);
    if (this.chunks.has(number)) return this.chunks.get(number);
    const asked = fetch(`${this.address}&start=${number * CELLS_AT_ONCE}`).then((answer) => {
      if (!answer.ok) throw new Error(`${answer.status}`);
      return answer.json();
    });
    this.chunks.set(number, asked);
    try {
      this.chunks.set(number, await asked);
    } catch {
      this.chunks.delete(number);
      throw new Error("no answer");
    }
    return this.chunks.get(number);
  }
}

class FileMap {
  constructor(section, map) {
    this.section = section;
    this.states = map.states;
    this.words = map.words;
    this.counts = map.counts;
    this.details = new CellDetails(section.dataset.cells);
    this.canvas = section.querySelector("canvas");
    this.readout = section.querySelector(".map-readout");
    this.picture = document.createElement("canvas");
    this.current = -1;
  }

  /** Show what became of the files since. */
  update(map) {
    this.states = map.states;
    this.words = map.words;
    this.counts = map.counts;
    this.details = new CellDetails(this.section.dataset.cells);
    if (this.current >= this.states.length) this.current = -1;
    this.showLegend();
    this.draw(true);
    if (this.current >= 0) this.fetchCurrent();
  }

  start() {
    this.showLegend();
    this.section.querySelector(".map-frame").hidden = false;
    this.canvas.addEventListener("pointermove", (event) => this.choose(this.at(event)));
    this.canvas.addEventListener("pointerdown", (event) => this.choose(this.at(event)));
    this.canvas.addEventListener("keydown", (event) => this.onKey(event));
    this.canvas.addEventListener("focus", () => this.current < 0 && this.choose(0));
    new ResizeObserver(() => this.draw()).observe(this.section);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw(true));
    this.draw();
    this.say("Point at a cell, or move with the arrow keys.");
    this.section.dataset.ready = "true";
  }

  showLegend() {
    const legend = this.section.querySelector(".map-legend");
    legend.replaceChildren();
    for (const [state, count] of this.counts) {
      const entry = document.createElement("li");
      const swatch = document.createElement("span");
      swatch.className = `swatch s-${state}`;
      swatch.setAttribute("aria-hidden", "true");
      entry.append(swatch, `${this.words[state]}: ${count.toLocaleString("en")}`);
      legend.append(entry);
    }
  }

  draw(anew = false) {
    const width = Math.floor(this.section.clientWidth);
    if (width === 0 || (width === this.width && !anew)) return;
    this.width = width;
    this.grid = gridOf(this.states.length, width);
    this.scale = window.devicePixelRatio || 1;
    for (const canvas of [this.canvas, this.picture]) {
      canvas.width = Math.ceil(this.grid.columns * this.grid.cell * this.scale);
      canvas.height = Math.ceil(this.grid.rows * this.grid.cell * this.scale);
    }
    this.canvas.style.width = `${this.grid.columns * this.grid.cell}px`;
    this.canvas.style.height = `${this.grid.rows * this.grid.cell}px`;
    this.paint();
    this.show();
  }

  paint() {
    const pen = this.picture.getContext("2d");
    pen.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    const colours = this.colours();
    const { cell, columns } = this.grid;
    const side = cell > 4 ? cell - 1 : cell > 2 ? cell - 0.5 : cell;
    for (const state of Object.keys(this.words)) {
      pen.fillStyle = colours[state];
      for (let i = this.states.indexOf(state); i >= 0; i = this.states.indexOf(state, i + 1)) {
        pen.fillRect((i % columns) * cell, Math.floor(i / columns) * cell, side, side);
      }
    }
    if (cell >= SYMBOL_FROM_PX) this.writeSymbols(pen, colours.symbol);
    else this.ringGrave(pen, colours);
  }

  writeSymbols(pen, colour) {
    pen.font = `bold ${Math.floor(this.grid.cell * 0.75)}px sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillStyle = colour;
    for (let i = 0; i < this.states.length; i += 1) {
      const symbol = SYMBOLS[this.states[i]];
      if (symbol !== undefined) pen.fillText(symbol, ...this.centre(i));
    }
  }

  ringGrave(pen, colours) {
    const { cell } = this.grid;
    const grave = this.counts.filter(([state]) => GRAVE.includes(state)).reduce((sum, [, count]) => sum + count, 0);
    if (grave * 20 > this.states.length && grave > 50) return; // rings on everything tell nothing
    for (let i = this.next(-1, 1); i >= 0; i = this.next(i, 1)) {
      const [x, y] = this.centre(i);
      for (const [colour, width] of [[colours.ring, 5], [colours[this.states[i]], 2.5]]) {
        pen.strokeStyle = colour;
        pen.lineWidth = width;
        pen.beginPath();
        pen.arc(x, y, Math.max(RING_PX, cell * 0.8), 0, 2 * Math.PI);
        pen.stroke();
      }
    }
  }

  colours() {
    const style = getComputedStyle(this.section);
    const names = [...Object.keys(this.words), "ring", "symbol"];
    return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--file-${name}`).trim()]));
  }

  /** Copy the picture, and mark the current cell. */
  show() {
    const pen = this.canvas.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    pen.drawImage(this.picture, 0, 0);
    if (this.current < 0) return;
    pen.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    const { cell } = this.grid;
    pen.strokeStyle = getComputedStyle(this.section).color;
    pen.lineWidth = 2;
    const grown = Math.max(cell, 8);
    const [x, y] = this.centre(this.current);
    pen.strokeRect(x - grown / 2, y - grown / 2, grown, grown);
  }

  centre(index) {
    const { cell, columns } = this.grid;
    return [((index % columns) + 0.5) * cell, (Math.floor(index / columns) + 0.5) * cell];
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const { cell, columns, rows } = this.grid;
    const column = Math.floor((event.clientX - box.left) / cell);
    const row = Math.floor((event.clientY - box.top) / cell);
    if (column < 0 || column >= columns || row < 0 || row >= rows) return -1;
    const index = row * columns + column;
    return index < this.states.length ? index : -1;
  }

  /** Return the next cell that is not as it should be, from one on; -1: none. */
  next(index, direction) {
    for (let i = index + direction; i >= 0 && i < this.states.length; i += direction) {
      if (GRAVE.includes(this.states[i])) return i;
    }
    return -1;
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { columns } = this.grid;
    const moves = {
      ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns,
      PageUp: -10 * columns, PageDown: 10 * columns, Home: -Infinity, End: Infinity,
    };
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    let target = -1;
    if (key in moves) target = Math.max(0, Math.min(this.states.length - 1, Math.max(0, this.current) + moves[key]));
    else if (key === "n") target = this.next(this.current, 1);
    else if (key === "p") target = this.next(this.current, -1);
    else return;
    event.preventDefault();
    if (target < 0) this.say("No other file here that is not as it should be.");
    else this.choose(target);
  }

  choose(index) {
    if (index < 0 || index === this.current) return;
    this.current = index;
    this.show();
    this.tell();
    clearTimeout(this.waiting);
    if (this.details.known(index) === undefined) this.waiting = setTimeout(() => this.fetchCurrent(), DWELL_MS);
  }

  async fetchCurrent() {
    const asked = this.current;
    try {
      await this.details.load(asked);
    } catch {
      if (this.current === asked) this.say(`${this.heading(asked)} · its name did not come; try again`);
      return;
    }
    this.tell();
  }

  heading(index) {
    const total = this.states.length.toLocaleString("en");
    return `File ${(index + 1).toLocaleString("en")} of ${total}: ${this.words[this.states[index]]}`;
  }

  tell() {
    const found = this.details.known(this.current);
    if (found === undefined) return this.say(`${this.heading(this.current)} …`);
    const [path, size, rank, finding] = found;
    const parts = [this.heading(this.current), path, size ?? "not there"];
    if (rank !== null) parts.push(`rank ${rank}`);
    if (finding !== null) parts.push(finding);
    this.say(parts.join(" · "));
  }

  say(text) {
    this.readout.textContent = text;
  }
}

const shown = new WeakMap();

async function showFileMap(section) {
  const readout = section.querySelector(".map-readout");
  try {
    const answer = await fetch(section.dataset.map);
    if (!answer.ok) throw new Error(`${answer.status}`);
    const map = await answer.json();
    if (map.states.length === 0) readout.textContent = section.dataset.none ?? "The validation saw no file.";
    else if (shown.has(section)) shown.get(section).update(map);
    else {
      shown.set(section, new FileMap(section, map));
      shown.get(section).start();
    }
  } catch {
    readout.textContent = "The map did not come; the table has the same files.";
  }
}

function followFileMaps(within) {
  for (const section of within.querySelectorAll(".file-map")) {
    section.addEventListener("live", () => showFileMap(section)); // static/live.js: something changed
    showFileMap(section);
  }
}

document.addEventListener("live:put", (event) => followFileMaps(event.target)); // static/live_parts.js: a new verdict
followFileMaps(document);
