// The timeline of one run: a mark per checkpoint, its lag and its rate of reading, over time or over steps.
// What it draws is also in the table below; what it says aloud is in the read-out.
"use strict";

{
  const section = document.getElementById("timeline");
  const PAGE = 25;
  const NEAR_PX = 12;
  const CLICK_PX = 4;
  const FLAGS = { quarantined: 1, suspect: 2, superseded: 4 };
  // What is drawn first lies below: trouble is never hidden by what is fine.
  const LAYERS = ["deleted", "valid-structure", "valid-content", "valid-loaded", "valid-resumable", "announced", "incomplete", "unjudged", "queued", "running", "unknown", "invalid"];
  const OUTCOMES = { resumed: "resumed", progressed: "went on well", failed_loading: "failed in load", failed_early: "failed early" };
  const HOURS = (text) => [text, "\n{MMM} {D}\n{YYYY}", null, "\n{MMM} {D}", null, null, null, 1];
  const DURATIONS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 432000, 864000, 8640000];
  const TIMES = [
    [31536000, "{YYYY}", null, null, null, null, null, null, 1],
    [2419200, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
    [86400, "{MMM} {D}", "\n{YYYY}", null, null, null, null, null, 1],
    [3600, ...HOURS("{HH}:{mm}")],
    [60, ...HOURS("{HH}:{mm}")],
    [1, ...HOURS("{HH}:{mm}:{ss}")],
  ];

  // ---- numbers and times as people read them -------------------------------------------------

  const count = new Intl.NumberFormat("en-US");

  function bytesText(value) {
    const units = ["B", "kB", "MB", "GB", "TB"];
    let power = 0;
    while (value >= 1000 && power < units.length - 1) { value /= 1000; power += 1; }
    return `${power ? value.toFixed(1) : value} ${units[power]}`;
  }

  function secondsText(value) {
    for (const [size, unit] of [[86400, "days"], [3600, "h"], [60, "min"]]) {
      if (value >= size) return `${+(value / size).toFixed(1)} ${unit}`;
    }
    return `${+value.toFixed(1)} s`;
  }

  function timeText(seconds) {
    return `${new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;
  }

  // ---- data --------------------------------------------------------------------------------------

  function summed(differences) {
    let total = 0;
    return differences.map((step) => (total += step));
  }

  function decoded(told) {
    return { ...told, id: summed(told.id), step: summed(told.step), at: summed(told.at), branch: summed(told.branch) };
  }

  function pointText(data, point) {
    const flags = data.flags[point];
    const parts = [`step ${count.format(data.step[point])}`, data.marks[data.mark[point]].text];
    for (const [name, bit] of Object.entries(FLAGS)) if (flags & bit) parts.push(name);
    if (point === data.target) parts.push("a launcher would resume from it");
    parts.push(`branch ${data.branch[point]}`, `saved ${timeText(data.at[point])}`);
    if (data.lag_s[point] !== null) parts.push(`first verdict after ${secondsText(data.lag_s[point])}`);
    if (data.bytes_per_s[point] !== null) parts.push(`read at ${bytesText(data.bytes_per_s[point])}/s`);
    return parts.join(" · ");
  }

  // ---- shapes: the same as in marks.html, 8 x 14 units around their middle -------------------

  const line = (ctx, width = 1.2) => { ctx.lineWidth = width; ctx.stroke(); };
  const circle = (ctx, r) => ctx.arc(0, 0, r, 0, 2 * Math.PI);
  const path = (ctx, ...points) => points.forEach(([x, y], i) => (i ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
  const square = (ctx) => ctx.rect(-2.8, -2.8, 5.6, 5.6);

  const SHAPES = {
    "valid-structure": (ctx) => { circle(ctx, 2.7); line(ctx); },
    "valid-content": (ctx) => { circle(ctx, 2.7); line(ctx); ctx.beginPath(); ctx.arc(0, 0, 2.7, -Math.PI / 2, Math.PI / 2); ctx.fill(); },
    "valid-loaded": (ctx) => { circle(ctx, 3.2); ctx.fill(); },
    "valid-resumable": (ctx) => { circle(ctx, 3.2); ctx.fill(); ctx.beginPath(); path(ctx, [-3.2, -4.4], [3.2, -4.4]); line(ctx); },
    invalid: (ctx) => { path(ctx, [-3, -3], [3, 3]); path(ctx, [3, -3], [-3, 3]); line(ctx, 1.8); },
    unknown: (ctx) => { path(ctx, [0, -4], [3.6, 0], [0, 4], [-3.6, 0]); ctx.fill(); },
    running: (ctx) => { path(ctx, [-2.5, -3.5], [-2.5, 3.5], [3.2, 0]); ctx.fill(); },
    queued: (ctx) => { square(ctx); line(ctx); },
    unjudged: (ctx) => { square(ctx); line(ctx); },
    announced: (ctx) => { path(ctx, [0, -3.4], [3.2, 2.8], [-3.2, 2.8]); ctx.closePath(); line(ctx); },
    incomplete: (ctx) => { square(ctx); path(ctx, [-2.8, 2.8], [2.8, -2.8]); line(ctx); },
    deleted: (ctx) => { path(ctx, [-2.5, 0], [2.5, 0]); line(ctx); },
  };

  function colours() {
    const style = getComputedStyle(section);
    const read = (name) => style.getPropertyValue(name).trim();
    const none = read("--none");
    const running = read("--running-fill");
    return {
      valid: read("--valid-fill"), invalid: read("--invalid-fill"), unknown: read("--unknown-fill"),
      running, queued: running, announced: running, unjudged: none, incomplete: none, deleted: none,
      text: read("--muted"), line: read("--line"), target: read("--valid"), start: read("--running"), bad: read("--invalid"),
    };
  }

  function drawMark(ctx, name, flags, palette, scale) {
    const colour = palette[name.startsWith("valid") ? "valid" : name];
    ctx.globalAlpha = flags & FLAGS.superseded ? 0.4 : 1;
    ctx.fillStyle = ctx.strokeStyle = colour;
    ctx.scale(scale, scale);
    ctx.beginPath();
    SHAPES[name](ctx);
    if (flags & (FLAGS.quarantined | FLAGS.suspect)) {
      ctx.strokeStyle = palette.invalid;
      ctx.beginPath();
      path(ctx, [-3.2, 5.6], [3.2, 5.6]);
      line(ctx, 1.8);
    }
  }

  // ---- what lies along one axis ------------------------------------------------------------------

  // Points in the order of the axis: uPlot wants its x ascending.
  function along(data, axis) {
    const x = axis === "time" ? data.at : data.step;
    const order = [...data.id.keys()].sort((a, b) => x[a] - x[b] || a - b);
    const layer = LAYERS.map(() => []);
    order.forEach((point, place) => layer[LAYERS.indexOf(data.marks[data.mark[point]].name)].push(place));
    return {
      axis, order, layer,
      x: order.map((point) => x[point]),
      y: order.map((point) => (axis === "time" ? data.step[point] : data.branch[point])),
      startX: (start) => (axis === "time" ? start.at : start.step),
    };
  }

  function xAxis(view, palette) {
    const shared = { stroke: palette.text, grid: { stroke: palette.line, width: 1 }, ticks: { stroke: palette.line, width: 1 } };
    if (view.axis === "time") return { ...shared, space: 70, values: TIMES };
    return { ...shared, label: "step", labelSize: 18, labelFont: "12px sans-serif", size: 32, space: 90, values: (_, splits) => splits.map((step) => (Number.isInteger(step) ? count.format(step) : "")) };
  }

  function yAxis(palette, label, text, more = {}) {
    return {
      stroke: palette.text, label, labelSize: 18, labelFont: "12px sans-serif", size: 64,
      grid: { stroke: palette.line, width: 1 }, ticks: { stroke: palette.line, width: 1 },
      values: (_, splits) => splits.map((value) => (value === null ? "" : text(value))), ...more,
    };
  }

  // ---- plots -----------------------------------------------------------------------------------------

  function options(view, palette, height, width, y, more) {
    return {
      width, height, legend: { show: false },
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      scales: { x: { time: view.axis === "time", range: (_, low, high) => padded(low, high) }, y: { range: more.yRange } },
      axes: [xAxis(view, palette), y],
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false, dist: 8 }, sync: { key: "run", scales: ["x", null] } },
      series: [{}, more.series],
      hooks: more.hooks || {},
    };
  }

  function padded(low, high, share = 0.02) {
    const room = (high - low) * share || 1;
    return [low - room, high + room];
  }

  function fromNothing(_, _low, high) {
    return [0, high > 0 ? high * 1.08 : 1];
  }

  function drawVertical(u, x, colour, dash, label, top) {
    const left = Math.round(u.valToPos(x, "x", true));
    const { ctx, bbox } = u;
    if (left < bbox.left || left > bbox.left + bbox.width) return;
    const ratio = devicePixelRatio;
    ctx.strokeStyle = ctx.fillStyle = colour;
    ctx.lineWidth = ratio;
    ctx.setLineDash(dash.map((part) => part * ratio));
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
    if (!label) return;
    const isRight = left > bbox.left + bbox.width / 2;
    ctx.font = `${12 * ratio}px sans-serif`;
    ctx.textAlign = isRight ? "right" : "left";
    ctx.textBaseline = "top";
    ctx.fillText(label, left + (isRight ? -4 : 4) * ratio, bbox.top + (4 + 15 * top) * ratio);
  }

  function drawLines(u, data, view, palette) {
    u.ctx.save();
    const starts = data.starts.filter((start) => view.startX(start) !== null);
    starts.forEach((start, place) => {
      const isBad = start.outcome.startsWith("failed");
      const from = start.step === null ? "from nothing" : `from step ${count.format(start.step)}`;
      const label = starts.length <= 8 ? `↻ ${from}: ${OUTCOMES[start.outcome]}` : "";
      drawVertical(u, view.startX(start), isBad ? palette.bad : palette.start, [4, 4], label, 1 + (place % 8));
    });
    if (data.target !== null) {
      const x = view.x[view.order.indexOf(data.target)];
      drawVertical(u, x, palette.target, [], `newest VALID: step ${count.format(data.step[data.target])}`, 0);
    }
    u.ctx.restore();
  }

  function drawMarks(u, data, view, palette) {
    const scale = devicePixelRatio * (view.order.length > 400 ? 0.9 : 1.25);
    const [low, high] = [u.scales.x.min, u.scales.x.max];
    for (const places of view.layer) {
      for (const place of places) {
        if (view.x[place] < low || view.x[place] > high) continue;
        const point = view.order[place];
        u.ctx.save();
        u.ctx.translate(u.valToPos(view.x[place], "x", true), u.valToPos(view.y[place], "y", true));
        drawMark(u.ctx, data.marks[data.mark[point]].name, data.flags[point], palette, scale);
        u.ctx.restore();
      }
    }
  }

  function marksPlot(target, data, view, palette) {
    const isTime = view.axis === "time";
    const text = (value) => (Number.isInteger(value) ? count.format(value) : "");
    const many = Math.max(...view.y);
    const more = {
      yRange: isTime ? (_, low, high) => padded(low, high, 0.07) : () => [-0.75, many + 0.75],
      series: { paths: () => null, points: { show: false } },
      hooks: { draw: [(u) => { drawLines(u, data, view, palette); drawMarks(u, data, view, palette); }] },
    };
    const axis = yAxis(palette, isTime ? "step" : "branch", text);
    const height = isTime ? 280 : Math.min(420, 130 + 30 * (many + 1));
    return new uPlot(options(view, palette, height, target.clientWidth, axis, more), [view.x, view.y], target);
  }

  function valuesPlot(target, data, view, palette, column, text, incrs) {
    const values = view.order.map((point) => data[column][point]);
    const colour = palette.start;
    const more = {
      yRange: fromNothing,
      series: { paths: () => null, stroke: colour, points: { show: true, size: 4, fill: colour, stroke: colour } },
    };
    return new uPlot(options(view, palette, 150, target.clientWidth, yAxis(palette, "", text, { space: 28, incrs }), more), [view.x, values], target);
  }

  // ---- which one is looked at --------------------------------------------------------------------

  function nearest(u, view, left, top) {
    let best = null;
    let distance = Infinity;
    for (let place = 0; place < view.order.length; place += 1) {
      const dx = u.valToPos(view.x[place], "x") - left;
      if (Math.abs(dx) >= distance) continue;
      const dy = u.valToPos(view.y[place], "y") - top;
      const away = Math.hypot(dx, dy);
      if (away < distance) { distance = away; best = place; }
    }
    return { place: best, isNear: distance <= NEAR_PX };
  }

  function Looking(target, first) {
    const readout = document.getElementById("readout");
    const ring = document.createElement("div");
    ring.className = "plot-focus";
    ring.hidden = true;
    let data = first;
    let shown = null;
    let place = null;
    let pressedAt = 0;

    const address = () => `${section.dataset.checkpoints}/${data.id[shown.view.order[place]]}`;

    function move() {
      if (place === null) return;
      const left = shown.u.valToPos(shown.view.x[place], "x");
      const isInside = left >= 0 && left <= shown.u.over.clientWidth;
      ring.hidden = !isInside;
      ring.style.left = `${left}px`;
      ring.style.top = `${shown.u.valToPos(shown.view.y[place], "y")}px`;
    }

    function look(at) {
      place = Math.max(0, Math.min(shown.view.order.length - 1, at));
      const text = pointText(data, shown.view.order[place]);
      const link = document.createElement("a");
      link.href = address();
      link.textContent = "open";
      readout.replaceChildren(document.createTextNode(`${text} `), link);
      target.setAttribute("aria-valuenow", String(place + 1));
      target.setAttribute("aria-valuetext", text);
      move();
    }

    function onKey(event) {
      const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -PAGE, PageUp: PAGE };
      if (event.key === "Enter" && place !== null) window.location.assign(address());
      else if (event.key === "Home") look(0);
      else if (event.key === "End") look(shown.view.order.length - 1);
      else if (event.key in steps) look((place === null ? shown.view.order.length - 1 : place) + steps[event.key]);
      else return;
      event.preventDefault();
    }

    function onMove(event) {
      const found = nearest(shown.u, shown.view, event.offsetX, event.offsetY);
      shown.u.over.classList.toggle("near", found.isNear);
      if (found.isNear) look(found.place);
    }

    function onDown(event) {
      pressedAt = event.clientX;
    }

    function onClick(event) {
      const found = nearest(shown.u, shown.view, event.offsetX, event.offsetY);
      const isDrag = Math.abs(event.clientX - pressedAt) > CLICK_PX;
      if (found.isNear && !isDrag) { look(found.place); window.location.assign(address()); }
    }

    target.addEventListener("keydown", onKey);
    return {
      show(u, view, told) {
        const id = shown && place !== null ? data.id[shown.view.order[place]] : undefined;
        const same = told.id.indexOf(id);
        const point = same >= 0 ? same : view.order[view.order.length - 1];
        data = told;
        shown = { u, view };
        u.over.append(ring);
        u.over.addEventListener("mousemove", onMove);
        u.over.addEventListener("mousedown", onDown);
        u.over.addEventListener("click", onClick);
        u.hooks.setScale = [...(u.hooks.setScale || []), () => requestAnimationFrame(move)];
        look(view.order.indexOf(point));
      },
      move,
    };
  }

  // ---- all together ------------------------------------------------------------------------------

  function prepare(data) {
    const target = document.getElementById("plot-marks");
    for (const [name, value] of Object.entries({
      role: "slider", tabindex: "0", "aria-label": "Checkpoints of the run", "aria-valuemin": "1",
      "aria-valuemax": String(data.id.length), "aria-describedby": "readout",
    })) target.setAttribute(name, value);
    for (const one of section.querySelectorAll(".axis, .hint, .readout")) one.hidden = false;
    if (data.is_cut) {
      section.querySelector(".hint").textContent = `The newest ${count.format(data.id.length)} checkpoints; older ones are in the table. `
        + section.querySelector(".hint").textContent;
    }
    return target;
  }

  function start(first) {
    const target = prepare(first);
    const lag = document.getElementById("plot-lag");
    const rate = document.getElementById("plot-rate");
    const looking = Looking(target, first);
    let data = first;
    let plots = [];

    function draw() {
      const view = along(data, section.querySelector("input[name=axis]:checked").value);
      const palette = colours();
      plots.forEach(([u]) => u.destroy());
      const marks = marksPlot(target, data, view, palette);
      plots = [
        [marks, target],
        [valuesPlot(lag, data, view, palette, "lag_s", secondsText, DURATIONS), lag],
        [valuesPlot(rate, data, view, palette, "bytes_per_s", (value) => `${bytesText(value)}/s`), rate],
      ];
      looking.show(marks, view, data);
    }

    function fit() {
      for (const [u, place] of plots) {
        if (u.width !== place.clientWidth) u.setSize({ width: place.clientWidth, height: u.height });
      }
      looking.move();
    }

    // What is looked at more closely stays so; all of it stays all of it.
    function follow(told) {
      const { min, max } = plots[0][0].scales.x;
      const x = plots[0][0].data[0];
      const isAll = min <= x[0] && max >= x[x.length - 1];
      data = told;
      target.setAttribute("aria-valuemax", String(data.id.length));
      draw();
      if (!isAll) for (const [u] of plots) u.setScale("x", { min, max });
      section.dataset.ready = String(data.id.length);
    }

    draw();
    section.addEventListener("change", draw);
    section.addEventListener("live", async () => {
      const told = await load().catch(() => null); // what is drawn stays; the next event asks again
      if (told !== null) follow(told);
    });
    new ResizeObserver(() => requestAnimationFrame(fit)).observe(section);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    section.dataset.ready = String(data.id.length);
  }

  function fail(error) {
    const notice = section.querySelector("[role=alert]");
    notice.textContent = `The timeline could not be loaded (${error.message}). The table below says the same; reload to try again.`;
    notice.hidden = false;
  }

  let etag = null;

  /** Return the data; null: they are as they were. */
  async function load() {
    const headers = { Accept: "application/json", ...(etag && { "If-None-Match": etag }) };
    const answer = await fetch(section.dataset.src, { headers, cache: "no-store" });
    if (answer.status === 304) return null;
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    etag = answer.headers.get("ETag");
    return decoded(await answer.json());
  }

  if (section) load().then(start).catch(fail);
}
