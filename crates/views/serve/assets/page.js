// The page of `narrows serve`: it asks for what is new once a second and draws it.
//
// All text that comes from the instance is set as text, never as HTML. Rates in tables are
// differences of two snapshots over the uptime between them, as everywhere in Narrows.
"use strict";

const POLL_MS = 1000;
const SPAN_S = 3600;
const ROWS_MAX = 500;
const COLOURS = 6;

const at = (id) => document.getElementById(id);
const history = { times: [], series: new Map() };
const charts = new Map();
let minutes = 5;
let isPaused = false;
let was = null;
let now = null;

// Numbers as people say them.
function short(value, unit = "") {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  let step = 0;
  const units = ["", "k", "M", "G", "T", "P"];
  while (Math.abs(value) >= 999.5 && step < units.length - 1) { value /= 1000; step += 1; }
  const digits = Number.isInteger(value) && step === 0 ? 0 : value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[step]}${unit}`.trim();
}
function duration(seconds) {
  const s = Math.floor(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s / 60) % 60)} min`;
}
const bits = (value) => short(value, "bit/s");
function micros(us) {
  if (us < 10) return `${us.toFixed(1)} us`;
  if (us < 1e3) return `${us.toFixed(0)} us`;
  return us < 1e6 ? `${(us / 1e3).toFixed(1)} ms` : `${(us / 1e6).toFixed(1)} s`;
}
// For tables, whose heads have the unit: three digits that matter, and no more than three decimals.
function digits(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  return value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : value >= 0.9995 || value === 0 ? 2 : 3);
}
const megabits = (bps) => digits(bps === null || bps === undefined ? null : bps / 1e6);
const millis = (us) => digits(us / 1e3);
const percent = (part, whole) =>
  part === null || !whole ? "-" : `${((100 * part) / whole).toFixed(0)} %`;

function clock(seconds) {
  if (seconds === undefined) return "-";
  const text = new Date(seconds * 1000).toTimeString().slice(0, 8);
  return text.endsWith(":00") ? text.slice(0, 5) : text;
}

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// What was counted per second; null where the counter went back or is new.
function rate(before, after) {
  if (!was || before === undefined || after === undefined) return null;
  const seconds = now.uptime_s - was.uptime_s;
  return seconds > 0 && after >= before ? (after - before) / seconds : null;
}

// A column's head is a text, or a text above those of several columns: [text, [text, ...]].
function header(made, heads) {
  const head = made.createTHead();
  const rows = heads.some(Array.isArray) ? [head.insertRow(), head.insertRow()] : [head.insertRow()];
  const add = (row, name, scope) => {
    const cell = element("th", name);
    cell.scope = scope;
    row.append(cell);
    return cell;
  };
  for (const one of heads) {
    if (Array.isArray(one)) {
      const [name, below] = one;
      add(rows[0], name, "colgroup").colSpan = below.length;
      for (const each of below) add(rows[1], each, "col");
    } else {
      add(rows[0], one, "col").rowSpan = rows.length;
    }
  }
}

function table(id, heads, rows, nothing) {
  if (rows.length === 0) return at(id).replaceChildren(element("p", nothing));
  const made = element("table");
  header(made, heads);
  const body = made.createTBody();
  for (const cells of rows.slice(0, ROWS_MAX)) {
    const row = body.insertRow();
    for (const cell of cells) row.insertCell().textContent = cell;
  }
  const parts = [made];
  if (rows.length > ROWS_MAX) {
    parts.push(element("p", `${rows.length - ROWS_MAX} more rows: filter, or narrows top`));
  }
  at(id).replaceChildren(...parts);
}

// --- charts -----------------------------------------------------------------------------------

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function learn(answer) {
  const known = history.times.length;
  history.times.push(...answer.times);
  const length = history.times.length;
  for (const series of answer.series) {
    const key = `${series.device}\n${series.what}\n${series.name}`;
    if (!history.series.has(key)) {
      history.series.set(key, { ...series, values: new Array(known).fill(null) });
    }
    history.series.get(key).values.push(...series.values);
  }
  for (const [key, series] of history.series) {
    while (series.values.length < length) series.values.push(null);
    if (series.values.every((value) => value === null)) history.series.delete(key);
  }
  const newest = history.times[length - 1];
  const old = history.times.findIndex((time) => time > newest - SPAN_S);
  if (old > 0) {
    history.times.splice(0, old);
    for (const series of history.series.values()) series.values.splice(0, old);
  }
}

const KINDS = [
  { title: "Delivered against limit", whats: ["delivered", "limit"], format: bits },
  { title: "Delay here", whats: ["delay"], format: micros },
  { title: "Round trips beyond the port", whats: ["round trip"], format: micros },
  { title: "Drops by reason", whats: ["drops"], format: (value) => short(value, "/s") },
  { title: "Delivered by queue", whats: ["queue"], format: bits },
  { title: "Delivered by CPU", whats: ["cpu"], format: bits },
];

function chartOf(holder, kind, chosen) {
  const labels = chosen.map((one) => (one.name === "" ? one.what : ["queue", "cpu"].includes(one.what) ? `${one.what} ${one.name}` : one.name));
  const series = labels.map((label, number) => ({
    label,
    stroke: colour(`--s${number % COLOURS}`),
    dash: chosen[number].what === "limit" || number >= COLOURS ? [6, 4] : undefined,
    width: 1.5,
    points: { show: false },
    // Without a cursor over the chart, the legend has the latest values.
    value: (plot, value, at, point) => kind.format(point === null ? plot.data[at].at(-1) : value),
  }));
  const axis = { stroke: colour("--front"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  return new uPlot({
    width: Math.max(holder.clientWidth, 200),
    height: 200,
    cursor: { sync: { key: "narrows" }, drag: { setScale: false } },
    scales: { y: { range: (_, least, most) => [0, most > 0 ? most * 1.08 : 1] } },
    axes: [{ ...axis, size: 30, space: 70, values: (_, times) => times.map(clock) }, { ...axis, size: 90, values: (_, values) => values.map(kind.format) }],
    series: [{ label: "at", value: (plot, time) => clock(time ?? plot.data[0].at(-1)) }, ...series],
  }, [[], ...labels.map(() => [])], holder);
}

function drawCharts() {
  const newest = history.times[history.times.length - 1];
  const first = Math.max(history.times.findIndex((time) => time > newest - minutes * 60), 0);
  const times = history.times.slice(first);
  for (const port of now ? now.ports : []) {
    for (const kind of KINDS) {
      const chosen = kind.whats.flatMap((what) =>
        [...history.series.values()].filter((one) => one.device === port.name && one.what === what));
      const id = `${port.name}\n${kind.title}`;
      const names = chosen.map((one) => `${one.what} ${one.name}`).join("\n");
      let chart = charts.get(id);
      if (chart && chart.names !== names) {
        chart.plot.destroy();
        chart.box.remove();
        charts.delete(id);
        chart = undefined;
      }
      if (!chart && chosen.length > 0) {
        const box = element("div", undefined, "chart");
        box.append(element("h3", kind.title));
        at(`charts ${port.name}`).append(box);
        chart = { names, box, plot: chartOf(box, kind, chosen) };
        charts.set(id, chart);
      }
      if (chart) chart.plot.setData([times, ...chosen.map((one) => one.values.slice(first))]);
    }
  }
}

function forgetCharts() {
  for (const chart of charts.values()) { chart.plot.destroy(); chart.box.remove(); }
  charts.clear();
}

// --- tables -----------------------------------------------------------------------------------

const earlierPort = (port) => (was ? was.ports.find((other) => other.name === port.name) : undefined);

// The median, the 99th and the 99.9th percentile of the times counted since `before`, in
// microseconds; null if there were none.
function percentiles(times, before) {
  const known = new Map(before ? before.counts : []);
  const counts = times ? times.counts.map(([us, packets]) => [us, packets - (known.get(us) || 0)]) : [];
  const all = counts.reduce((sum, [, packets]) => sum + packets, 0);
  if (all <= 0) return null;
  return [0.5, 0.99, 0.999].map((share) => {
    let seen = 0;
    const reached = counts.find(([, packets]) => (seen += packets) >= share * all);
    return reached ? reached[0] : 0;
  });
}

// The same for a table, in milliseconds.
const percentileCells = (times, before) => (percentiles(times, before) || [null, null, null]).map((us) => (us === null ? "-" : millis(us)));

// The delays of packets that left in the last interval, and round trips beyond the port.
function delays(port, before) {
  const here = percentiles(port.delays, before && before.delays);
  const trips = port.round_trips || {};
  const old = (before && before.round_trips) || {};
  const beyond = percentiles(trips.times, old.times);
  const said = (what, times) => {
    const [p50, p99, p999] = times.map(micros);
    return `, ${what} ${p50} (p99 ${p99}, p99.9 ${p999})`;
  };
  return (here ? said("delay here", here) : "") + (beyond ? said("round trips beyond", beyond) : "");
}

// The shortest and the median round trip, and the shares of segments lost before and beyond the
// port: two cells.
function beyond(trip, losses) {
  const share = (part) => ((100 * part) / losses.segments).toFixed(0);
  return [
    trip ? `${millis(trip.min_us)} / ${millis(trip.p50_us)}` : "",
    losses && losses.segments ? `${share(losses.before)} / ${share(losses.beyond)}` : "",
  ];
}
const DELAY = ["delay here, ms", ["median", "p99", "p99.9"]];
const BEYOND = [["round trip, ms", ["least / median"]], ["lost, %", ["before / beyond"]]];

function drawPorts() {
  const names = now.ports.map((port) => port.name).join("\n");
  if (at("ports").dataset.names !== names) {
    forgetCharts();
    at("ports").dataset.names = names;
    at("ports").replaceChildren(...now.ports.map((port) => {
      const section = element("section");
      const head = element("h2");
      head.id = `head ${port.name}`;
      const boxes = element("div", undefined, "charts");
      boxes.id = `charts ${port.name}`;
      section.append(head, boxes);
      return section;
    }));
  }
  for (const port of now.ports) {
    const before = earlierPort(port);
    const sent = before ? rate(before.total.tx_bytes, port.total.tx_bytes) : null;
    const limit = history.series.get(`${port.name}\nlimit\n`);
    const most = limit ? limit.values[limit.values.length - 1] : null;
    const against = most ? ` of ${bits(most)} (${percent(sent === null ? null : sent * 8, most)})` : ", no limit";
    const carrier = port.no_carrier ? ", NO CARRIER" : "";
    at(`head ${port.name}`).textContent =
      `${port.name}: ${bits(sent === null ? null : sent * 8)}${against}, ${port.qdisc}, ` +
      `${short(port.total.backlog_packets)} packets queued${delays(port, before)}${carrier}`;
  }
}

function drawClasses() {
  const filter = at("filter").value.toLowerCase();
  const isMeasured = now.ports.some((port) => port.round_trips);
  const rows = [];
  for (const port of now.ports) {
    const before = new Map(((earlierPort(port) || {}).classes || []).map((one) => [one.handle, one]));
    const below = new Map();
    const known = new Set((port.classes || []).map((one) => one.handle));
    for (const one of port.classes || []) {
      const parent = known.has(one.parent) ? one.parent : "";
      if (!below.has(parent)) below.set(parent, []);
      below.get(parent).push(one);
    }
    const toDo = (below.get("") || []).map((one) => [one, 0]).reverse();
    while (toDo.length > 0) {
      const [one, depth] = toDo.pop();
      for (const child of [...(below.get(one.handle) || [])].reverse()) toDo.push([child, depth + 1]);
      const name = `${port.name} ${one.handle}${one.name ? ` ${one.name}` : ""}`;
      if (!name.toLowerCase().includes(filter)) continue;
      const old = before.get(one.handle);
      const sent = old ? rate(old.stats.bytes, one.stats.bytes) : null;
      const byKey = (key) => (old ? short(rate(old.stats[key], one.stats[key])) : "-");
      // Of a class with service curves, the second slopes.
      const set = one.rate || ((one.sc || one.rt || {}).m2);
      const most = one.ceil || ((one.ul || {}).m2);
      const top = most || set;
      rows.push([
        "  ".repeat(depth) + name, set ? megabits(set * 8) : "", most ? megabits(most * 8) : "",
        megabits(sent === null ? null : sent * 8), percent(sent, top), short(one.stats.qlen),
        ...percentileCells(one.stats.delays, old && old.stats.delays), short(one.stats.drops),
        byKey("drops"), byKey("lended"), byKey("borrowed"),
        ...(isMeasured ? beyond(one.stats.round_trip, one.stats.losses) : []),
      ]);
    }
  }
  table("classes", [
    "class", ["Mbit/s", ["rate", "ceil", "sent"]], "used", "queued", DELAY, "drops",
    ["per second", ["drops", "lent", "borrowed"]], ...(isMeasured ? BEYOND : []),
  ], rows, filter ? "no class matches" : "there are no classes");
}

// The most hosts or flows of each kind, from the last complete window.
const HEAVY_SHOWN = 4;

function drawHeaviest() {
  const rows = [];
  for (const port of now.ports) {
    const heaviest = port.heaviest || {};
    for (const [what, those] of [["from", heaviest.sources], ["to", heaviest.destinations], ["flow", heaviest.flows]]) {
      for (const one of (those || []).slice(0, HEAVY_SHOWN)) {
        rows.push([
          `${port.name} ${what} ${one.name}`, megabits(one.bps), percent(Math.min(one.bps, port.tx_rate_bps), port.tx_rate_bps),
          millis(one.delay_p50_us), millis(one.delay_p99_us), millis(one.delay_p999_us), millis(one.delay_max_us),
          ...beyond(one.round_trip, one.losses),
        ]);
      }
    }
  }
  table("heaviest", [
    "host, flow", ["Mbit/s", ["sent"]], "share", ["delay here, ms", ["median", "p99", "p99.9", "longest"]], ...BEYOND,
  ], rows, "no host sent anything in the last seconds");
}

const STATES = { up: "up", down: "DOWN", last: "FAILS, is the last" };

// Only a balancer has services.
function drawServices() {
  const services = now.services || [];
  at("services-section").hidden = services.length === 0;
  const rows = [];
  const counters = (before, after) => [
    ...["connections", "packets"].map((key) => (before ? short(rate(before[key], after[key])) : "-")),
    megabits(before ? rate(before.bytes * 8, after.bytes * 8) : null), short(after.connections),
  ];
  for (const one of services) {
    const name = (address) => (address.includes(":") ? `[${address}]:${one.port}` : `${address}:${one.port}`);
    const same = (other) => other.protocol === one.protocol && other.address === one.address && other.port === one.port;
    const old = was && (was.services || []).find(same);
    rows.push([`${one.protocol.toUpperCase()} ${name(one.address)}`, one.scheduler, "", ...counters(old && old.stats, one.stats), ""]);
    for (const server of one.servers) {
      const before = old && old.servers.find((other) => other.address === server.address);
      rows.push([
        `  ${name(server.address)}`, server.forward, `${server.weight}`, ...counters(before && before.stats, server.stats),
        STATES[server.health],
      ]);
    }
  }
  table("services", ["service, server", "way", "weight", ["per second", ["connections", "packets"]], ["Mbit/s", ["to servers"]], "connections", "state"], rows, "");
}

const TINS = { 3: ["Bulk", "Best Effort", "Voice"], 4: ["Bulk", "Best Effort", "Video", "Voice"] };

function drawTins() {
  const rows = [];
  for (const port of now.ports) {
    for (const qdisc of port.qdiscs || []) {
      const same = (one) => one.kind === qdisc.kind && one.handle === qdisc.handle && one.parent === qdisc.parent;
      const old = ((earlierPort(port) || {}).qdiscs || []).find(same);
      (qdisc.tins || []).forEach((tin, number) => {
        const before = old && old.tins && old.tins.length === qdisc.tins.length ? old.tins[number] : undefined;
        // tc's key; cake counts a tin's arrivals, including packets that it drops later.
        const arrived = before ? rate(before.sent_bytes, tin.sent_bytes) : null;
        const name = (TINS[qdisc.tins.length] || [])[number] || `Tin ${number}`;
        rows.push([
          `${port.name} ${qdisc.handle} ${name}`, tin.threshold_rate ? megabits(tin.threshold_rate * 8) : "",
          megabits(arrived === null ? null : arrived * 8), ...percentileCells(tin.delays, before && before.delays),
          short(tin.backlog_bytes, "B"),
          before ? short(rate(before.drops, tin.drops)) : "-", before ? short(rate(before.ecn_mark, tin.ecn_mark)) : "-",
          short(tin.sparse_flows + tin.bulk_flows + tin.unresponsive_flows),
        ]);
      });
    }
  }
  table("tins", ["tin", ["Mbit/s", ["threshold", "arrived"]], DELAY, "queued", ["per second", ["drops", "marks"]], "flows"], rows, "there is no cake");
}

// Counted beside losses: a part of the errors, and times without a frame.
const NO_LOSS = new Set(["tx_carrier", "fill_ring_empty"]);

function drawRest() {
  table("workers", ["worker", "core", "CPU", "frames", "free", "receiving", "waiting", "sending", "state"],
    now.workers.map((one) => {
      const old = was ? was.workers.find((other) => other.queue === one.queue) : undefined;
      return [
        `${one.queue}`, `${one.cpu}`, old ? percent(rate(old.cpu_s, one.cpu_s), 1) : "-", short(one.frames),
        short(one.free_frames), short(one.receiving_frames), short(one.waiting_frames), short(one.sending_frames),
        one.silent_s === undefined ? "ok" : `SILENT for ${one.silent_s.toFixed(1)} s`,
      ];
    }), "the ports are not joined");
  const sum = now.conservation;
  const dropped = Object.values(sum.dropped).reduce((all, count) => all + count, 0);
  at("books").textContent = `received ${sum.received} = sent ${sum.sent}${sum.to_box ? ` + to this box ${sum.to_box}` : ""} + queued ${sum.queued} + dropped ${dropped}, ` +
    `${sum.unaccounted} unaccounted, ${sum.bypassed} bypassed`;
  at("books").className = sum.unaccounted === 0 ? "" : "bad";
  const losses = now.ports.flatMap((port) => {
    const old = earlierPort(port);
    const places = [["queue", (it) => it.total.drops_by_reason], ["kernel", (it) => it.kernel_drops], ["device", (it) => it.device_losses]];
    return places.flatMap(([place, of]) => Object.entries(of(port)).filter(([reason, count]) => count > 0 && !NO_LOSS.has(reason)).map(([reason, count]) =>
      [`${port.name} ${place} ${reason}`, short(count), old ? short(rate(of(old)[reason] || 0, count)) : "-"]));
  });
  table("losses", ["where and why", "packets", "per second"], losses, "nothing was lost");
  const findings = (now.findings || []).filter((it) => it.severity !== "ok");
  table("doctor", ["", "subject", "finding", "what to type"],
    findings.map((it) => [it.severity, it.subject, it.what, it.remedy || ""]),
    now.findings ? "nothing to mend" : "not examined since the upgrade: run narrows doctor");
  at("events").replaceChildren(...[...now.events].reverse().map((text) => element("li", text)));
  at("warnings").replaceChildren(...(now.warnings || []).map((text) => element("li", text)));
}

function drawState(gone) {
  const state = at("state");
  state.className = gone || (now && now.state !== "running") ? "bad" : "";
  if (gone) state.textContent = `no answer, last figures below: ${gone}`;
  else if (now) {
    const wait = now.waiting_for ? `: ${now.waiting_for}` : "";
    state.textContent = `${now.state} for ${duration(now.uptime_s)}, fail-${now.fail}${wait}`;
  }
}

// --- the loop ---------------------------------------------------------------------------------

async function get(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

async function look() {
  const newest = history.times[history.times.length - 1] || 0;
  const [answer, latest] = await Promise.all([get(`api/history?since=${newest}`), get("api/snapshot")]);
  learn(answer);
  const next = latest.snapshot;
  if (next && (!now || next.uptime_s !== now.uptime_s)) {
    was = now && next.uptime_s > now.uptime_s ? now : null;
    now = next;
  }
  drawState(latest.gone);
  if (now) draw();
}

function draw() {
  drawPorts();
  drawClasses();
  drawServices();
  drawHeaviest();
  drawTins();
  drawRest();
  drawCharts();
}

async function loop() {
  if (!isPaused && !document.hidden) {
    try {
      await look();
    } catch (problem) {
      drawState(`narrows serve: ${problem.message}`);
    }
  }
  setTimeout(loop, POLL_MS);
}

function showMinutes(chosen) {
  minutes = chosen;
  for (const button of document.querySelectorAll("[data-minutes]")) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.minutes) === minutes));
  }
  drawCharts();
}

function pause() {
  isPaused = !isPaused;
  at("pause").setAttribute("aria-pressed", String(isPaused));
}

for (const button of document.querySelectorAll("[data-minutes]")) {
  button.addEventListener("click", () => showMinutes(Number(button.dataset.minutes)));
}
at("pause").addEventListener("click", pause);
at("filter").addEventListener("input", () => now && drawClasses());
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === at("filter")) {
    if (event.key === "Escape") at("filter").blur();
    return;
  }
  const chosen = { 1: 5, 2: 15, 3: 60 }[event.key];
  if (chosen) showMinutes(chosen);
  else if (event.key === "p") pause();
  else if (event.key === "/") { event.preventDefault(); at("filter").focus(); }
});
new ResizeObserver(() => {
  for (const chart of charts.values()) {
    const width = chart.box.clientWidth;
    if (width > 0 && width !== chart.plot.width) chart.plot.setSize({ width, height: 200 });
  }
}).observe(document.querySelector("main"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { forgetCharts(); if (now) drawCharts(); });
loop();
