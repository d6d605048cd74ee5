'use strict';
const F = JSON.parse(document.getElementById('facts').textContent);
const OTHER = JSON.parse(document.getElementById('other').textContent);
const $ = (id) => document.getElementById(id);
const COLOURS = ['#4e79a7', '#f28e2b', '#59a14f', '#b07aa1', '#e15759', '#76b7b2', '#edc948', '#9c755f', '#ff9da7', '#86bcb6'];
const state = { layer: -1, by: 'op', sort: 'index', down: false, filter: '' };
let code = null;

/* Elements ---------------------------------------------------------------------------------------------------------- */

function el(name, attributes, ...children) {
  const svg = ['svg', 'rect', 'line', 'text', 'circle', 'path', 'g', 'polyline', 'title'].includes(name);
  const made = svg ? document.createElementNS('http://www.w3.org/2000/svg', name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? '' : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) made.append(child);
  return made;
}
const whole = (n) => Math.round(n).toLocaleString('en-GB');
function short(n) {
  for (const [limit, unit] of [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']]) if (n >= limit) return (n / limit).toFixed(1) + ' ' + unit;
  return String(Math.round(n * 100) / 100);
}
function bytes(n) {
  if (n < 1024) return n + ' B';
  return n < 1 << 20 ? (n / 1024).toFixed(1) + ' KB' : (n / (1 << 20)).toFixed(2) + ' MB';
}
function time(us) {
  if (us === null) return '';
  return us >= 1000 ? (us / 1000).toFixed(2) + ' ms' : us >= 10 ? us.toFixed(1) + ' µs' : us.toFixed(2) + ' µs';
}
const tag = (source) => el('span', { class: 'tag ' + source }, source);
const section = (id, title) => { const s = el('section', { id }, el('h2', {}, title)); $('main').append(s); return s; };
function tip(event, text) {
  const t = $('tip');
  if (!text) { t.hidden = true; return; }
  t.textContent = text; t.hidden = false;
  t.style.left = Math.min(event.clientX + 12, innerWidth - t.offsetWidth - 8) + 'px';
  t.style.top = Math.min(event.clientY + 14, innerHeight - t.offsetHeight - 8) + 'px';
}
function download(name, text, type) {
  const link = el('a', { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/* What a column says of a layer ------------------------------------------------------------------------------------- */

const cost = (l) => (l.time !== null ? l.time : l.cycles);
const costs = F.layers.some((l) => cost(l) !== null);
const timed = F.layers.some((l) => l.time !== null);
const totalCost = F.layers.reduce((sum, l) => sum + (cost(l) || 0), 0) + F.between.reduce((sum, b) => sum + b.cost, 0);
const COLUMNS = [
  { key: 'index', label: '#', number: true, of: (l) => l.index, text: (l) => String(l.index) },
  { key: 'label', label: 'layer', of: (l) => l.label },
  { key: 'op', label: 'op', of: (l) => l.op },
  { key: 'result', label: 'result', of: (l) => l.result },
  { key: 'macs', label: 'multiply-adds', number: true, heat: true, of: (l) => l.macs, text: (l) => short(l.macs) },
  { key: 'cost', label: timed ? 'time' : 'cycles', number: true, heat: true, of: cost, hide: !costs,
    text: (l) => (l.time !== null ? time(l.time) : l.cycles === null ? '' : whole(l.cycles)) },
  { key: 'share', label: 'share', number: true, of: cost, hide: !costs, text: (l) => share(l) },
  { key: 'instructions', label: 'instructions', number: true, heat: true, of: (l) => l.instructions,
    hide: !F.layers.some((l) => l.instructions !== null), text: (l) => (l.instructions === null ? '' : whole(l.instructions)) },
  { key: 'weight_bytes', label: 'weights', number: true, heat: true, of: (l) => l.weight_bytes, text: (l) => bytes(l.weight_bytes) },
  { key: 'live_bytes', label: 'RAM alive', number: true, heat: true, of: (l) => l.live_bytes, text: (l) => bytes(l.live_bytes) },
  { key: 'error', label: 'error', number: true, heat: true, of: (l) => l.error, hide: !F.layers.some((l) => l.error !== null),
    text: (l) => (l.error === null ? '' : l.error === 0 ? '0' : l.whole ? l.error + ' steps' : l.error.toExponential(1)) },
  { key: 'kernel', label: 'kernel', of: (l) => l.kernel },
  { key: 'why', label: 'why this kernel', of: (l) => l.why },
].filter((c) => !c.hide);
function share(layer) {
  const part = totalCost ? (cost(layer) || 0) / totalCost : 0;
  return el('span', {}, (100 * part).toFixed(1) + ' % ', el('i', { class: 'share', style: `width:${(60 * part).toFixed(1)}px` }));
}
const ops = [...new Set(F.layers.map((l) => l.op))];
const opColour = (op) => COLOURS[Math.max(0, ops.indexOf(op)) % COLOURS.length];
function colourOf(index) {
  if (index < 0) return getComputedStyle(document.documentElement).getPropertyValue('--line');
  const column = COLUMNS.find((c) => c.key === state.by);
  if (!column || !column.heat) return opColour(F.layers[index].op);
  const values = F.layers.map((l) => column.of(l) || 0);
  const part = Math.sqrt((column.of(F.layers[index]) || 0) / Math.max(...values, 1e-30));
  return `hsl(${(210 - 200 * part).toFixed(0)} 70% ${(62 - 14 * part).toFixed(0)}%)`;
}

/* Sections ---------------------------------------------------------------------------------------------------------- */

function overview() {
  const s = section('overview', 'Overview');
  s.querySelector('h2').remove();
  const broken = [];
  const n = F.numerics;
  if (n && !n.ok) broken.push(`results differ from ${n.reference}` + (n.first_bad ? `, from layer ${n.first_bad} on` : ''));
  for (const b of F.budgets || []) if (!b.ok) broken.push(b.text);
  const fine = !broken.length;
  const limits = (F.budgets || []).length || F.ram_limit ? ', and within its limits' : '';
  const words = fine ? (n ? `Results agree with ${n.reference}${limits}` : `Results were not compared${limits}`) : broken.join('; ');
  s.append(el('p', { class: 'verdict' }, el('span', { class: fine ? (n ? 'ok' : 'maybe') : 'no' }, fine ? (n ? '✓' : '•') : '✗'), words));
  const measured = F.figures.filter((f) => f.source === 'measured' || f.source === 'emulated').length;
  s.append(el('p', { class: 'lead' }, `${F.model} for ${F.board || F.target} (${F.about}). ` +
    `${measured} of ${F.figures.length} figures are measured or emulated. Intaglio ${F.intaglio}.`));
  const cards = F.figures.map((f) => el('div', { class: 'figure' },
    el('div', { class: 'what' }, f.label), el('div', { class: 'value' }, f.text), tag(f.source)));
  s.append(el('div', { class: 'figures' }, cards));
  for (const note of F.notes) s.append(el('p', { class: 'lead maybe' }, note));
  if ((F.budgets || []).length) {
    s.append(el('h3', {}, 'Budgets'), table(['budget', '>limit', '>value', ''],
      F.budgets.map((b) => [b.key, b.limit_text, b.value_text, b.ok ? '✓' : '✗'])));
  }
  s.append(el('h3', {}, 'Flash and RAM by part'));
  s.append(bar('flash', F.flash, F.flash_limit), bar('RAM', F.ram, F.ram_limit));
  if (F.advice.length) {
    s.append(el('h3', {}, 'What else could be tried'));
    s.append(el('ul', { class: 'advice' }, F.advice.map((a) => el('li', {}, el('code', {}, a.flag), ` ${a.gain}. `, tag(a.source), el('div', { class: 'lead' }, a.text)))));
  }
  s.append(el('h3', {}, 'How to reproduce'));
  s.append(el('pre', {}, F.command + '\nintaglio report ' + F.name));
  s.append(el('p', { class: 'lead' }, 'Model SHA-256 ', el('code', {}, F.sha256), '. Tools: ' +
    Object.entries(F.tools).map(([k, v]) => `${k} ${v}`).join(', ') + '.'));
  s.append(el('div', { class: 'tools' }, 'Download',
    el('button', { type: 'button', onclick: () => download(F.name + '.json', JSON.stringify(F, null, 1), 'application/json') }, 'JSON'),
    el('button', { type: 'button', onclick: () => download(F.name + '.csv', csv(), 'text/csv') }, 'CSV'),
    el('button', { type: 'button', onclick: () => download(F.name + '.trace.json', trace(), 'application/json') }, 'Chrome trace'),
    el('button', { type: 'button', onclick: () => download(F.name + '.overlay.json', overlay(), 'application/json') },
      'Model Explorer overlay')));
}
function bar(title, parts, limit) {
  const total = parts.reduce((sum, p) => sum + p.bytes, 0);
  const full = Math.max(total, limit || 0, 1);
  const pieces = parts.map((p, n) => el('i', { style: `width:${(100 * p.bytes) / full}%;background:${COLOURS[n % COLOURS.length]}`,
    title: `${p.name}: ${whole(p.bytes)} bytes` }));
  const legend = parts.map((p, n) => el('span', {}, el('i', { style: `background:${COLOURS[n % COLOURS.length]}` }),
    `${p.name} ${whole(p.bytes)} `, tag(p.source)));
  const of = limit ? ` of ${whole(limit)} (${((100 * total) / limit).toFixed(1)} %)` : '';
  return el('div', {}, el('div', {}, `${title}: ${whole(total)} bytes${of}`),
    el('div', { class: 'stack', role: 'img', 'aria-label': `${title} by part` }, pieces), el('div', { class: 'legend' }, legend));
}
function table(heads, rows, kind) {
  const head = heads.map((h) => el('th', { class: h.startsWith('>') ? 'n' : null, style: 'padding:.35rem .5rem' }, h.replace('>', '')));
  const body = rows.map((row) => el('tr', {}, row.map((cell, n) => el('td', { class: heads[n].startsWith('>') ? 'n' : n === 0 && kind ? kind : null }, cell))));
  return el('div', { class: 'scroll' }, el('table', {}, el('thead', {}, el('tr', {}, head)), el('tbody', {}, body)));
}

function memory() {
  if (!F.regions.length || !F.layers.length) return;
  const s = section('memory', 'Memory');
  for (const region of F.regions) {
    const blocks = F.blocks.filter((b) => b.region === region.name);
    const alive = blocks.filter((b) => b.first <= region.peak && region.peak <= b.last).sort((a, b) => b.bytes - a.bytes);
    const within = (a, b) => b.offset <= a.offset && a.offset + a.bytes <= b.offset + b.bytes;
    const peak = alive.filter((b, n) => !alive.slice(0, n).some((larger) => within(b, larger))); // memory taken over counts once
    const proof = region.bytes === region.bound ? 'proven optimal: no plan of these buffers is smaller'
      : `lower bound ${whole(region.bound)} bytes, drawn in green`;
    s.append(el('p', { class: 'lead' }, `${region.name}: ${whole(region.bytes)} bytes, ${proof}. ` +
      `The peak is at layer ${region.peak}, ${F.layers[region.peak].label}, where ${whole(region.live[region.peak])} bytes are alive: ` +
      peak.slice(0, 5).map((b) => `${b.value} ${whole(b.bytes)}`).join(', ') + (peak.length > 5 ? ', ...' : '') + '.'));
    s.append(el('div', { class: 'scroll' }, addresses(region, blocks)));
  }
  s.append(el('p', { class: 'lead' }, 'Addresses go up, layers to the right. A buffer lives from the layer that writes it to the last that reads it.'));
}
function addresses(region, blocks) {
  const W = 1000, H = 320, L = 70, B = 26, steps = F.layers.length, x = (i) => L + ((W - L - 10) * i) / steps;
  const y = (at) => 10 + (H - B - 10) * (1 - at / Math.max(region.bytes, 1));
  const plot = el('svg', { class: 'plot', viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': `Addresses in ${region.name} by layer` });
  for (let n = 0; n <= 4; n++) {
    const at = (region.bytes * n) / 4;
    plot.append(el('line', { class: 'axis', x1: L, x2: W - 10, y1: y(at), y2: y(at) }), el('text', { x: L - 6, y: y(at) + 4, 'text-anchor': 'end' }, bytes(Math.round(at))));
  }
  for (const b of blocks) {
    const box = el('rect', { class: 'block', x: x(b.first), width: Math.max(1, x(b.last + 1) - x(b.first)), y: y(b.offset + b.bytes),
      height: Math.max(0.8, y(b.offset) - y(b.offset + b.bytes)), 'data-layer': b.layer,
      fill: b.kind === 'value' ? opColour(F.layers[b.layer].op) : b.kind === 'input' ? '#8c959f' : b.kind === 'state' ? '#8250df' : '#bf8700', 'fill-opacity': b.kind === 'value' ? 0.85 : 0.55,
      onclick: () => choose(b.layer), onmousemove: (e) => tip(e, `${b.value}: ${whole(b.bytes)} bytes at ${whole(b.offset)}, layers ${b.first} to ${b.last}`), onmouseleave: (e) => tip(e, '') });
    plot.append(box);
  }
  plot.append(el('line', { class: 'bound', x1: L, x2: W - 10, y1: y(region.bound), y2: y(region.bound) }));
  plot.append(el('rect', { x: x(region.peak), width: x(region.peak + 1) - x(region.peak), y: 10, height: H - B - 10, fill: 'none', class: 'peak' }));
  for (let n = 0, step = Math.max(1, Math.ceil(steps / 16)); n < steps; n += step) plot.append(el('text', { x: (x(n) + x(n + 1)) / 2, y: H - 8, 'text-anchor': 'middle' }, n));
  return plot;
}

function layers() {
  const s = section('layers', 'Layers');
  const filter = el('input', { type: 'search', placeholder: 'Filter layers (/)', 'aria-label': 'Filter layers', id: 'filter',
    oninput: (e) => { state.filter = e.target.value.toLowerCase(); fill(); } });
  s.append(el('div', { class: 'tools' }, filter, el('span', { class: 'lead', id: 'count' }), tag(F.time_source)));
  const head = COLUMNS.map((c) => el('th', { class: c.number ? 'n' : null, 'data-key': c.key },
    el('button', { type: 'button', onclick: () => { state.down = state.sort === c.key ? !state.down : !!c.heat; state.sort = c.key; fill(); } }, c.label)));
  const body = el('tbody', { id: 'rows' });
  s.append(el('div', { class: 'scroll tall' }, el('table', {}, el('thead', {}, el('tr', {}, head)), body)));
  const beside = F.between.map((b) => `${b.name} ${timed ? time(b.cost) : whole(b.cost)} (${((100 * b.cost) / (totalCost || 1)).toFixed(1)} %)`);
  if (beside.length) s.append(el('p', { class: 'lead', id: 'between' }, `Shares are of the whole run. Outside of layers: ${beside.join(', ')}.`));
  fill();
}
function sorted() {
  const column = COLUMNS.find((c) => c.key === state.sort) || COLUMNS[0];
  const order = [...F.layers].filter((l) => !state.filter || `${l.name} ${l.op} ${l.kernel} ${l.source}`.toLowerCase().includes(state.filter));
  order.sort((a, b) => {
    const [p, q] = [column.of(a), column.of(b)];
    const way = p === q ? 0 : p === null ? -1 : q === null ? 1 : p < q ? -1 : 1;
    return (state.down ? -way : way) || a.index - b.index;
  });
  return order;
}
function fill() {
  const order = sorted();
  $('rows').replaceChildren(...order.map((l) => el('tr', { tabindex: 0, 'data-layer': l.index, class: l.index === state.layer ? 'chosen' : null,
    onclick: () => choose(l.index), onkeydown: rowKey }, COLUMNS.map((c) => el('td', { class: c.number ? 'n' : null, title: c.key === 'label' ? l.name : null }, c.text ? c.text(l) : c.of(l))))));
  $('count').textContent = `${order.length} of ${F.layers.length} layers`;
  for (const th of document.querySelectorAll('th[data-key]')) {
    th.setAttribute('aria-sort', th.dataset.key === state.sort ? (state.down ? 'descending' : 'ascending') : 'none');
  }
}
function rowKey(event) {
  const row = event.currentTarget;
  if (event.key === 'Enter' || event.key === ' ') { choose(+row.dataset.layer); event.preventDefault(); }
  const next = event.key === 'ArrowDown' ? row.nextElementSibling : event.key === 'ArrowUp' ? row.previousElementSibling : null;
  if (next) { next.focus(); choose(+next.dataset.layer); event.preventDefault(); }
}

function roofline() {
  const least = timed && F.roof ? F.roof.least : 0; // shorter layers are the clock's noise
  const points = F.layers.filter((l) => l.macs && cost(l) && cost(l) >= least && !l.accelerator).map((l) => ({ l, x: l.macs / Math.max(1, l.weight_bytes + l.result_bytes), y: l.macs / cost(l) }));
  if (points.length < 2) return;
  const s = section('roofline', 'Roofline');
  const roof = F.roof && (F.roof.unit === 'us') === timed ? F.roof : null, unit = timed ? 'multiply-adds per µs' : 'multiply-adds per cycle';
  const beside = F.layers.some((l) => l.accelerator) ? 'Layers of accelerators are left out. ' : '';
  s.append(el('p', { class: 'lead' }, `Each dot is a layer: how much it computes per byte of weights and results, and how fast. ${beside}`, tag(F.time_source)));
  if (roof) s.append(el('p', { class: 'lead' }, `Lines: what the target can do at best: ${roof.words}. `, tag(roof.source)));
  const W = 1000, H = 360, L = 70, B = 40;
  const xs = points.map((p) => Math.log10(p.x)), ys = points.map((p) => Math.log10(p.y));
  if (roof) { ys.push(Math.log10(roof.macs)); }
  const [x0, x1] = [Math.min(...xs) - 0.2, Math.max(...xs) + 0.2], [y0, y1] = [Math.min(...ys) - 0.2, Math.max(...ys) + 0.2];
  const x = (v) => L + ((W - L - 10) * (Math.log10(v) - x0)) / (x1 - x0), y = (v) => 10 + (H - B - 10) * (1 - (Math.log10(v) - y0) / (y1 - y0));
  const plot = el('svg', { class: 'plot', viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': 'Roofline' });
  for (let d = Math.ceil(x0); d <= x1; d++) plot.append(el('line', { class: 'axis', x1: x(10 ** d), x2: x(10 ** d), y1: 10, y2: H - B }), el('text', { x: x(10 ** d), y: H - B + 16, 'text-anchor': 'middle' }, String(10 ** d)));
  for (let d = Math.ceil(y0); d <= y1; d++) plot.append(el('line', { class: 'axis', x1: L, x2: W - 10, y1: y(10 ** d), y2: y(10 ** d) }), el('text', { x: L - 6, y: y(10 ** d) + 4, 'text-anchor': 'end' }, short(10 ** d)));
  for (const [rate, line] of roof ? [[roof.bytes, 'roof'], [roof.flash, 'roof flash']] : []) {
    if (!rate) continue;
    const from = Math.max(10 ** x0, 10 ** y0 / rate), knee = Math.min(roof.macs / rate, 10 ** x1);
    if (from < knee) plot.append(el('polyline', { fill: 'none', class: line, points: `${x(from)},${y(from * rate)} ${x(knee)},${y(knee * rate)}` }));
  }
  if (roof) {
    const knee = Math.min(Math.max(roof.macs / roof.bytes, 10 ** x0), 10 ** x1);
    plot.append(el('line', { class: 'roof', x1: x(knee), x2: W - 10, y1: y(roof.macs), y2: y(roof.macs) }));
  }
  for (const p of points) plot.append(el('circle', { cx: x(p.x), cy: y(p.y), r: 5, fill: opColour(p.l.op), 'fill-opacity': 0.8, 'data-layer': p.l.index, style: 'cursor:pointer',
    onclick: () => choose(p.l.index), onmousemove: (e) => tip(e, `${p.l.label}: ${p.y.toFixed(2)} ${unit}, ${p.x.toFixed(1)} per byte`), onmouseleave: (e) => tip(e, '') }));
  plot.append(el('text', { x: W / 2, y: H - 6, 'text-anchor': 'middle' }, 'multiply-adds per byte'), el('text', { x: 8, y: 8 }, ''), el('text', { transform: `translate(14 ${H / 2}) rotate(-90)`, 'text-anchor': 'middle' }, unit));
  s.append(el('div', { class: 'scroll' }, plot), legend());
}
const legend = () => el('div', { class: 'legend' }, ops.map((op) => el('span', {}, el('i', { style: `background:${opColour(op)}` }), op)));

/* The graph: drawn on a canvas, moved by dragging, wheel and keys. Places come from the file. */

const view = { x: 0, y: 0, scale: 1 };
const NODE = { w: 150, h: 34, dx: 170, dy: 62 };
function graph() {
  if (!F.nodes.length) return;
  const s = section('graph-section', 'Graph');
  const pick = el('select', { 'aria-label': 'Colour by', onchange: (e) => { state.by = e.target.value; draw(); } },
    COLUMNS.filter((c) => c.heat || c.key === 'op').map((c) => el('option', { value: c.key }, c.label)));
  s.append(el('div', { class: 'tools' }, 'Colour by', pick, el('button', { type: 'button', onclick: () => { fit(); draw(); } }, 'Whole graph'),
    el('span', { class: 'lead' }, `${F.nodes.length} nodes; drag, wheel or arrow keys, + and −`)));
  const canvas = el('canvas', { id: 'graph', tabindex: 0, role: 'img', 'aria-label': 'Graph of the network' });
  s.append(canvas, legend());
  let held = null;
  canvas.addEventListener('pointerdown', (e) => { held = { x: e.clientX, y: e.clientY, moved: false }; canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener('pointermove', (e) => {
    if (!held) { const n = nodeAt(e); tip(e, n < 0 ? '' : `${F.nodes[n].label}: ${F.nodes[n].op}`); return; }
    if (Math.abs(e.clientX - held.x) + Math.abs(e.clientY - held.y) > 3) held.moved = true;
    if (held.moved) { view.x += e.clientX - held.x; view.y += e.clientY - held.y; held.x = e.clientX; held.y = e.clientY; draw(); }
  });
  canvas.addEventListener('pointerup', (e) => { if (held && !held.moved) { const n = nodeAt(e); if (n >= 0) choose(F.nodes[n].layer); } held = null; });
  canvas.addEventListener('pointerleave', (e) => tip(e, ''));
  canvas.addEventListener('wheel', (e) => { e.preventDefault(); zoom(e.deltaY < 0 ? 1.15 : 1 / 1.15, e.offsetX, e.offsetY); }, { passive: false });
  canvas.addEventListener('keydown', (e) => {
    const step = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60] }[e.key];
    if (step) { view.x += step[0]; view.y += step[1]; draw(); e.preventDefault(); }
    if (e.key === '+' || e.key === '=') zoom(1.2, canvas.clientWidth / 2, canvas.clientHeight / 2);
    if (e.key === '-') zoom(1 / 1.2, canvas.clientWidth / 2, canvas.clientHeight / 2);
  });
  addEventListener('resize', draw);
  start();
}
function zoom(by, x, y) {
  const scale = Math.min(4, Math.max(0.01, view.scale * by));
  view.x = x - ((x - view.x) * scale) / view.scale; view.y = y - ((y - view.y) * scale) / view.scale; view.scale = scale;
  draw();
}
function extent() {
  const xs = F.nodes.map((n) => n.x), ys = F.nodes.map((n) => n.y);
  return { x0: Math.min(...xs) * NODE.dx - NODE.w / 2, x1: Math.max(...xs) * NODE.dx + NODE.w / 2, y0: Math.min(...ys) * NODE.dy, y1: Math.max(...ys) * NODE.dy + NODE.h };
}
function fit() {
  const c = $('graph'), e = extent();
  view.scale = Math.min(1.2, (c.clientWidth - 30) / (e.x1 - e.x0), (c.clientHeight - 30) / (e.y1 - e.y0));
  view.x = c.clientWidth / 2 - (view.scale * (e.x0 + e.x1)) / 2; view.y = c.clientHeight / 2 - (view.scale * (e.y0 + e.y1)) / 2;
}
function start() {
  const c = $('graph'), e = extent();
  fit();
  if (view.scale < 0.55) { view.scale = 0.75; view.x = c.clientWidth / 2 - (view.scale * (e.x0 + e.x1)) / 2; view.y = 15 - view.scale * e.y0; }
  draw();
}
function nodeAt(event) {
  const x = (event.offsetX - view.x) / view.scale, y = (event.offsetY - view.y) / view.scale;
  return F.nodes.findIndex((n) => Math.abs(x - n.x * NODE.dx) < NODE.w / 2 && y > n.y * NODE.dy && y < n.y * NODE.dy + NODE.h);
}
function draw() {
  const c = $('graph');
  if (!c) return;
  const ratio = devicePixelRatio || 1, w = c.clientWidth, h = c.clientHeight;
  c.width = w * ratio; c.height = h * ratio;
  const g = c.getContext('2d'), style = getComputedStyle(document.documentElement);
  const [line, text] = ['--line', '--text'].map((name) => style.getPropertyValue(name));
  g.setTransform(ratio * view.scale, 0, 0, ratio * view.scale, ratio * view.x, ratio * view.y);
  const seen = { x0: -view.x / view.scale - NODE.w, x1: (w - view.x) / view.scale + NODE.w, y0: -view.y / view.scale - 2 * NODE.dy, y1: (h - view.y) / view.scale + NODE.dy };
  const inside = (n) => n.x * NODE.dx > seen.x0 && n.x * NODE.dx < seen.x1 && n.y * NODE.dy > seen.y0 && n.y * NODE.dy < seen.y1;
  g.strokeStyle = text; g.globalAlpha = 0.35; g.lineWidth = Math.max(1, 0.6 / view.scale); g.beginPath();
  for (const [a, b] of F.edges) {
    const p = F.nodes[a], q = F.nodes[b];
    if (!inside(p) && !inside(q)) continue;
    const x0 = p.x * NODE.dx, y0 = p.y * NODE.dy + NODE.h, x1 = q.x * NODE.dx, y1 = q.y * NODE.dy, m = (y0 + y1) / 2;
    g.moveTo(x0, y0); g.bezierCurveTo(x0, m, x1, m, x1, y1);
  }
  g.stroke(); g.globalAlpha = 1;
  const words = view.scale > 0.35;
  g.font = '11px system-ui, sans-serif'; g.textAlign = 'center'; g.textBaseline = 'middle';
  for (const n of F.nodes) {
    if (!inside(n)) continue;
    const x = n.x * NODE.dx - NODE.w / 2, y = n.y * NODE.dy;
    g.fillStyle = colourOf(n.layer); g.fillRect(x, y, NODE.w, NODE.h);
    if (n.layer >= 0 && n.layer === state.layer) { g.strokeStyle = text; g.lineWidth = 3; g.strokeRect(x, y, NODE.w, NODE.h); }
    if (words) {
      g.fillStyle = n.layer >= 0 ? '#fff' : text;
      g.fillText(n.op, x + NODE.w / 2, y + 11, NODE.w - 8); g.fillText(n.label.slice(-26), x + NODE.w / 2, y + 24, NODE.w - 8);
    }
  }
}

function numerics() {
  const n = F.numerics;
  if (!n) return;
  const s = section('numerics', 'Numerics');
  s.append(el('p', { class: 'lead' }, `Compared with ${n.reference} on ${n.samples} ${n.random ? 'random ' : ''}inputs. Pass: ${n.rule}.`));
  s.append(table(['output', '>largest difference', '>relative', '>cosine', ''], n.outputs.map((o) =>
    [o.name, Number(o.max_abs).toExponential(2), Number(o.max_rel).toExponential(2), o.cosine === null ? '' : Number(o.cosine).toFixed(6), o.ok ? '✓' : '✗'])));
  if ((n.against_float || []).length) {
    s.append(el('p', { class: 'lead' }, 'It was quantised here, so that it is compared with its own integers. Beside the float model' + (n.random ? ', on random inputs, which rarely resemble real ones:' : ':')));
    s.append(table(['output', '>largest difference', '>cosine', '>SQNR'], n.against_float.map((o) =>
      [o.name, Number(o.max_abs).toExponential(2), o.cosine === null ? '' : Number(o.cosine).toFixed(5), o.sqnr_db === null ? '' : Number(o.sqnr_db).toFixed(0) + ' dB'])));
  }
  const worst = F.layers.filter((l) => l.error !== null).sort((a, b) => b.error - a.error || a.index - b.index);
  if (!worst.length) { if (n.no_layers) s.append(el('p', { class: 'lead' }, `Layers were not compared: ${n.no_layers}.`)); return; }
  if (worst.length < F.layers.length) s.append(el('p', { class: 'lead' }, `${worst.length} of ${F.layers.length} layers have a tensor of the model to compare with; others are fused.`));
  s.append(el('h3', {}, 'Layers, worst first'), chosenTable(['>#', 'layer', 'op', '>error', '>cosine'], worst.slice(0, 40), (l) =>
    [l.index, l.label, l.op, l.whole ? l.error + ' steps' : l.error.toExponential(2), l.cosine === null ? '' : l.cosine.toFixed(6)]));
}
function chosenTable(heads, rows, cells) {
  const made = table(heads, rows.map(cells));
  made.querySelectorAll('tbody tr').forEach((tr, n) => {
    tr.tabIndex = 0; tr.dataset.layer = rows[n].index; tr.addEventListener('click', () => choose(rows[n].index)); tr.addEventListener('keydown', rowKey);
  });
  return made;
}

function quantization() {
  const q = F.quantization;
  if (!q) return;
  const s = section('quantisation', 'Quantisation');
  s.append(el('p', { class: 'lead' }, `${q.scheme}, ranges by ${q.ranges}, ${q.samples} ${q.random_data ? 'random ' : ''}samples.` + (q.equalized ? ` Pairs of layers equalised: ${q.equalized}.` : '') + (q.corrected ? ` Biases corrected: ${q.corrected}.` : '') + (q.advice ? ` ${q.advice}` : '')));
  if (Array.isArray(q.outputs)) s.append(table(['output', '>relative error', '>cosine', '>largest'], q.outputs.map((o) => [o.name, `${(100 * o.relative).toFixed(2)} %`, Number(o.cosine).toFixed(5), Number(o.largest).toExponential(2)])));
  if (Array.isArray(q.layers) && q.layers.length) s.append(el('h3', {}, 'Error by layer'), table(['layer', 'op', 'stored', '>alone', '>accumulated'],
    [...q.layers].sort((a, b) => b.alone - a.alone).map((l) => [l.name, l.op, l.stored, `${(100 * l.alone).toFixed(2)} %`, `${(100 * l.accumulated).toFixed(2)} %`])));
}

function accelerators() {
  const a = F.accelerators;
  if (!a) return;
  const s = section('accelerators', 'Accelerators');
  const known = a.profiled_cycles !== null, kept = (a.core || []).filter((k) => k.cycles || k.profiled_cycles);
  const estimate = `${whole(a.core_cycles)} cycles on the core alone`, by = 'by the model of costs that chose the places';
  s.append(el('p', { class: 'lead' }, known ? `${whole(a.profiled_cycles)} cycles, as in the profile, instead of about ${estimate} (estimated ${by}). ` : `About ${whole(a.cycles)} cycles instead of ${estimate}, ${by}. `,
    known ? tag(F.time_source) : tag('estimated')));
  const cycles = (x) => (x.profiled_cycles === null ? '' : whole(x.profiled_cycles)), heads = known ? ['>cycles'] : [];
  s.append(table(['where', 'layers', ...heads, '>on the core, est.', '>compute + transfer + launch, est.'], (a.regions || []).map((r) => [r.place, r.layers.join(', '), ...(known ? [cycles(r)] : []), whole(r.core_cycles),
    [r.cycles, r.transfer_cycles, r.launch_cycles].map(whole).join(' + ')])));
  if (kept.length) s.append(el('h3', {}, 'What stays on the core'), table(['layer', 'op', known ? '>cycles' : '>cycles, est.', 'because'], kept.map((k) => [k.layer, k.op, known ? cycles(k) : whole(k.cycles), k.reasons.join('; ')])));
}

function passes() {
  if (!F.passes.length) return;
  const s = section('passes', 'What each pass changed');
  const words = (table) => Object.entries(table).map(([op, n]) => (n > 1 ? `${n} ${op}` : op)).join(', ');
  s.append(table(['pass', '>nodes after', 'removed', 'added', 'layers'], F.passes.map((p) => [el('code', {}, p.name), p.nodes, words(p.removed), words(p.added), p.layers.slice(0, 4).join(', ')])));
}

function snippets() {
  const s = section('use', 'Use it');
  for (const x of F.snippets) {
    s.append(el('h3', {}, x.title, ' ', el('button', { type: 'button', onclick: (e) => { navigator.clipboard && navigator.clipboard.writeText(x.text); e.target.textContent = 'copied'; } }, 'copy')), el('pre', {}, x.text));
  }
}

function difference() {
  if (!OTHER) return;
  const s = section('difference', `Compared with ${OTHER.name}`);
  s.append(el('p', { class: 'lead' }, `${OTHER.before} → ${OTHER.after}. Layers are matched by name and shape.`));
  const mark = (d) => el('span', { class: d.worse ? 'more' : d.better ? 'less' : null }, d.change_text);
  s.append(table(['figure', '>before', '>now', '>change'], OTHER.figures.map((d) => [d.label, d.before_text, d.after_text, mark(d)])));
  if (OTHER.layers.length) s.append(el('h3', {}, 'Layers that changed'), table(['layer', 'what', 'before', 'now'], OTHER.layers.map((d) => [d.layer, d.what, d.before, d.after])));
  else s.append(el('p', { class: 'lead' }, 'No layer changed.'));
}

/* The selected layer: facts, C and assembly side by side ------------------------------------------------------------- */

async function unpacked() {
  if (code) return code;
  const text = $('code').textContent.trim();
  if (!text) return (code = {});
  const raw = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream('gzip'));
  return (code = JSON.parse(await new Response(stream).text()));
}
async function choose(index) {
  if (index === undefined || index < 0 || index >= F.layers.length) return;
  state.layer = index;
  for (const row of document.querySelectorAll('[data-layer]')) row.classList.toggle('chosen', +row.dataset.layer === index);
  draw();
  history.replaceState(null, '', `#layer-${index}`);
  const l = F.layers[index], panel = $('panel');
  const texts = (await unpacked())[l.function] || {};
  if (state.layer !== index) return;
  const facts = [['operator', l.op], ['result', l.result], ['multiply-adds', whole(l.macs)], [timed ? 'time' : 'cycles', costs ? (l.time !== null ? time(l.time) : l.cycles === null ? '' : whole(l.cycles)) : ''],
    ['instructions', l.instructions === null ? '' : whole(l.instructions)], ['weights', whole(l.weight_bytes) + ' bytes'], ['RAM alive', whole(l.live_bytes) + ' bytes'],
    ['error', l.error === null ? '' : l.whole ? l.error + ' steps' : l.error.toExponential(2)], ['kernel', l.kernel], ['why', l.why], ['function', l.function], ['file', texts.file || ''], ['code', texts.bytes ? whole(texts.bytes) + ' bytes' : ''],
    ['computed by', l.accelerator], ['in the model', l.source]].filter(([, v]) => v);
  const list = el('dl', {}, facts.flatMap(([k, v]) => [el('dt', {}, k), el('dd', {}, v)]));
  const others = l.refused.length ? [el('h3', {}, 'Other kernels'), el('dl', {}, l.refused.flatMap((r) => [el('dt', {}, r.kernel), el('dd', {}, r.reason)]))] : [];
  panel.replaceChildren(el('div', { class: 'head' }, el('h2', {}, `${l.index} ${l.label}`), el('button', { type: 'button', onclick: () => choose(index - 1), 'aria-label': 'Previous layer' }, '←'),
    el('button', { type: 'button', onclick: () => choose(index + 1), 'aria-label': 'Next layer' }, '→'), el('button', { type: 'button', class: 'close', onclick: close, 'aria-label': 'Close' }, '✕')),
  el('div', { class: 'sides' }, el('div', {}, list, others), el('div', {}, el('h3', {}, 'C'), el('pre', {}, texts.c || 'not in the package')), el('div', {}, el('h3', {}, 'Assembly'), el('pre', {}, texts.assembly || F.no_assembly || 'inlined, or not in the table of symbols'))));
  panel.hidden = false;
}
function close() { $('panel').hidden = true; state.layer = -1; for (const row of document.querySelectorAll('.chosen')) row.classList.remove('chosen'); draw(); }

/* Files to download -------------------------------------------------------------------------------------------------- */

function csv() {
  const keys = ['index', 'name', 'op', 'kernel', 'result', 'macs', 'time', 'cycles', 'instructions', 'weight_bytes', 'result_bytes', 'live_bytes', 'error', 'cosine', 'function', 'source'];
  const cell = (v) => { const t = v === null ? '' : String(v); return /[",\n]/.test(t) ? `"${t.replace(/"/g, '""')}"` : t; };
  return [keys.join(','), ...F.layers.map((l) => keys.map((k) => cell(l[k])).join(','))].join('\n') + '\n';
}
function trace() {
  let at = 0;
  const events = [{ name: 'process_name', ph: 'M', pid: 1, tid: 1, args: { name: `${F.name} on ${F.target}` } }];
  for (const l of F.layers) {
    const dur = cost(l) || 0;
    events.push({ name: l.label, cat: l.op, ph: 'X', pid: 1, tid: 1, ts: at, dur, args: { kernel: l.kernel, macs: l.macs, source: l.source } });
    at += dur;
  }
  return JSON.stringify({ traceEvents: events, displayTimeUnit: 'ms', otherData: { unit: timed ? 'us' : 'cycles', source: F.time_source } });
}
function overlay() {
  const results = {};
  for (const l of F.layers) if (cost(l) !== null) results[l.source || l.name] = { value: cost(l) };
  /* Without the name of a graph: Model Explorer takes it for the one that is shown, and each format calls its graph otherwise. */
  return JSON.stringify({ name: timed ? 'time (us)' : 'cycles', results, gradient: [{ stop: 0, bgColor: '#c6dbef' }, { stop: 1, bgColor: '#de2d26' }] });
}

/* Start --------------------------------------------------------------------------------------------------------------- */

$('title').textContent = `${F.name} · ${F.board || F.target}`;
for (const part of [overview, difference, memory, layers, roofline, graph, numerics, quantization, accelerators, passes, snippets]) part();
for (const s of document.querySelectorAll('main > section')) {
  const title = s.id === 'overview' ? 'Overview' : s.querySelector('h2').textContent;
  $('nav').append(el('a', { href: '#' + s.id }, title.startsWith('Compared') ? 'Difference' : title.startsWith('What each') ? 'Passes' : title));
}
$('theme').addEventListener('click', () => {
  const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  root.dataset.theme = dark ? 'light' : 'dark';
  draw();
});
addEventListener('keydown', (e) => {
  if (e.key === 'Escape') close();
  if (e.key === '/' && !/INPUT|SELECT/.test(document.activeElement.tagName)) { $('filter').focus(); e.preventDefault(); }
});
const linked = () => { const found = /^#layer-(\d+)$/.exec(location.hash); if (found) choose(+found[1]); };
addEventListener('hashchange', linked);
linked();
document.documentElement.dataset.ready = 'yes';
