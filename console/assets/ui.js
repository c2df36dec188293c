// Parts that all pages share: formats of values, small components, and a table for many rows.

import { html, useState, useEffect, useLayoutEffect, useRef, useMemo } from "./vendor/preact.js";

// ---- values ----

export const number = (n) => (typeof n === "number" ? n.toLocaleString("en-US") : String(n ?? ""));

// short prints a count in at most five characters.
export function short(n) {
  if (n == null) return "–";
  if (n < 10 && n !== Math.floor(n)) return n.toFixed(1);
  if (n < 10000) return Math.round(n).toLocaleString("en-US");
  for (const unit of ["k", "M", "G", "T"]) {
    n /= 1000;
    if (n < 100) return n.toFixed(n < 10 ? 2 : 1) + unit;
    if (n < 1000) return n.toFixed(0) + unit;
  }
  return n.toExponential(1);
}

export function bytes(n) {
  if (n == null) return "–";
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (n < 1024) return (unit === "B" || n >= 100 ? Math.round(n) : n.toFixed(1)) + " " + unit;
    n /= 1024;
  }
  return n.toFixed(1) + " TiB";
}

// duration prints nanoseconds in three digits.
export function duration(ns) {
  if (!ns) return "–";
  if (ns < 1e3) return `${ns} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toPrecision(3)} µs`;
  if (ns < 1e9) return `${(ns / 1e6).toPrecision(3)} ms`;
  return `${(ns / 1e9).toPrecision(3)} s`;
}

export const percent = (share) => `${Math.round(100 * share)} %`;

export const moment = (text) => (text ? new Date(text).toISOString().replace("T", " ").slice(0, 19) + " UTC" : "–");

export function ago(text) {
  const seconds = Math.max(0, (Date.now() - new Date(text)) / 1000);
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  }
  return `${Math.floor(seconds)} s ago`;
}

// pretty indents JSON, and returns other text as it is.
export function pretty(text) {
  try {
    JSON.parse(text);
  } catch {
    return text;
  }
  return indentJSON(text);
}

// indentJSON indents the text of a document without reading its numbers.
export function indentJSON(text) {
  let out = "", depth = 0;
  const tokens = text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g) || [];
  const line = () => "\n" + "  ".repeat(depth);
  tokens.forEach((token, i) => {
    const next = tokens[i + 1], before = tokens[i - 1];
    if (token === "{" || token === "[") {
      depth++;
      out += next === "}" || next === "]" ? token : token + line();
    } else if (token === "}" || token === "]") {
      depth--;
      out += before === "{" || before === "[" ? token : line() + token;
    } else if (token === ",") out += "," + line();
    else out += token === ":" ? ": " : token;
  });
  return out;
}

// ---- hooks ----

// useTask runs an operation that may fail and be replaced by the next one.
export function useTask() {
  const [state, setState] = useState({ busy: false, error: null, value: null });
  const current = useRef(null);
  useEffect(() => () => current.current?.abort(), []);
  const run = async (operation, { keep = true } = {}) => {
    current.current?.abort();
    const own = (current.current = new AbortController());
    setState((s) => ({ busy: true, error: null, value: keep ? s.value : null }));
    try {
      const value = await operation(own.signal);
      if (!own.signal.aborted) setState({ busy: false, error: null, value });
      return value;
    } catch (error) {
      if (error.name === "AbortError" || own.signal.aborted) {
        if (current.current === own) setState((s) => ({ ...s, busy: false }));
        return undefined;
      }
      setState((s) => ({ busy: false, error, value: keep ? s.value : null }));
      return undefined;
    }
  };
  const cancel = () => {
    current.current?.abort();
    setState((s) => ({ ...s, busy: false }));
  };
  return { ...state, run, cancel, setValue: (value) => setState({ busy: false, error: null, value }) };
}

export function useStored(key, initial) {
  const [value, setValue] = useState(() => {
    try {
      return JSON.parse(localStorage.getItem(key)) ?? initial;
    } catch {
      return initial;
    }
  });
  return [value, (next) => {
    setValue(next);
    try {
      localStorage.setItem(key, JSON.stringify(next));
    } catch { /* a full or forbidden store only forgets */ }
  }];
}

// ---- components ----

const icons = {
  pipelines: "M3 6h5l3 6h10M3 18h5l3-6",
  letters: "M3 6h18v12H3zM3 7l9 7 9-7",
  sql: "M4 6c0-4 16-4 16 0v12c0 4-16 4-16 0zM4 6c0 4 16 4 16 0M4 12c0 4 16 4 16 0",
  playground: "M8 5l-6 7 6 7M16 5l6 7-6 7M13.5 4l-3 16",
  nodes: "M12 3v6M12 9l-7 6M12 9l7 6M5 15v5M19 15v5M12 9v11",
  pause: "M8 5v14M16 5v14",
  play: "M7 4l13 8-13 8z",
  sun: "M12 8a4 4 0 100 8 4 4 0 000-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M5 19l1.4-1.4M17.6 6.4L19 5",
  moon: "M20 14.5A8.5 8.5 0 019.5 4a8.5 8.5 0 1010.5 10.5z",
  chevron: "M9 5l7 7-7 7",
  retry: "M20 11a8 8 0 10-2.3 6M20 4v7h-7",
  download: "M12 3v12M7 10l5 5 5-5M4 20h16",
  search: "M11 4a7 7 0 100 14 7 7 0 000-14zM16 16l5 5",
};

export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d=${icons[name]} /></svg>`;

export const Fail = ({ error }) => error && html`<div class="fail" role="alert">
  <strong>${error.line ? `Line ${error.line}${error.column ? `, column ${error.column}` : ""}: ` : ""}${error.message}</strong>
  ${error.hint && html`<div>${error.hint}</div>`}
</div>`;

export const Empty = ({ title, children }) => html`<div class="empty"><strong>${title}</strong><div>${children}</div></div>`;

const tones = { running: "good", starting: "warn", draining: "warn", paused: "warn", retrying: "bad", stopped: "bad" };

export const State = ({ state }) => html`<span class="badge ${tones[state] || "bad"}"><i aria-hidden="true"></i>${state}</span>`;

export const Figure = ({ label, value, note, tone }) => html`<div class="figure">
  <div class="label">${label}</div><div class="value ${tone || ""}">${value}</div>${note && html`<div class="note">${note}</div>`}
</div>`;

export const Panel = ({ title, actions, children, className }) => html`<section class="panel ${className || ""}">
  <header><h2>${title}</h2><div class="actions">${actions}</div></header>${children}
</section>`;

export const Field = ({ label, children }) => html`<label class="field"><span>${label}</span>${children}</label>`;

// Sparkline draws the last values, scaled by the largest.
export function Sparkline({ values, width = 120, height = 24, label }) {
  const most = Math.max(...values, 1e-9);
  const step = width / Math.max(1, values.length - 1);
  const points = values.map((v, i) => `${(i * step).toFixed(1)},${(height - 2 - (v / most) * (height - 4)).toFixed(1)}`);
  return html`<svg class="sparkline" width=${width} height=${height} role="img" aria-label=${label}>
    ${values.length > 1 && html`<path class="area" d=${`M0,${height} L${points.join(" L")} L${width},${height}Z`} /><path class="line" d=${`M${points.join(" L")}`} />`}
  </svg>`;
}

// Dialog asks something above the page.
export function Dialog({ title, onClose, children }) {
  const ref = useRef(null);
  useEffect(() => {
    ref.current.showModal();
  }, []);
  return html`<dialog ref=${ref} onClose=${onClose} aria-labelledby="dialog-title"><h2 id="dialog-title">${title}</h2>${children}</dialog>`;
}

// Tabs chooses one of several views.
export const Tabs = ({ label, all, value, onChange }) => html`<div class="tabs" role="group" aria-label=${label}>
  ${all.map(([key, text]) => html`<button type="button" aria-pressed=${value === key} onClick=${() => onChange(key)}>${text}</button>`)}
</div>`;

export function download(name, content, type) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// ---- a table of many rows ----

const rowHeight = 28;

export const cellText = (value) => (value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value));

// Grid shows rows. The document contains only those in view. columns have name, and maybe
// type and width in characters; rows are arrays.
export function Grid({ columns, rows, label, onPick }) {
  const ref = useRef(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const widths = useMemo(() => columns.map((c, i) => {
    let most = c.name.length + 2;
    for (const row of rows.slice(0, 200)) most = Math.max(most, cellText(row[i]).length);
    return c.width || Math.min(60, Math.max(8, most + 4));
  }), [columns, rows]);
  const numeric = useMemo(() => columns.map((_, i) => {
    const some = rows.slice(0, 200).filter((row) => row[i] !== null);
    return some.length > 0 && some.every((row) => typeof row[i] === "number" || /^-?\d{16,}$/.test(row[i]));
  }), [columns, rows]);
  useLayoutEffect(() => {
    const box = ref.current;
    const update = () => setView({ top: box.scrollTop, height: box.clientHeight });
    update();
    box.addEventListener("scroll", update, { passive: true });
    const observer = new ResizeObserver(update);
    observer.observe(box);
    return () => {
      box.removeEventListener("scroll", update);
      observer.disconnect();
    };
  }, []);
  useEffect(() => {
    ref.current.scrollTop = 0;
  }, [columns]);
  const first = Math.max(0, Math.floor(view.top / rowHeight) - 8);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / rowHeight) + 8);
  const template = { gridTemplateColumns: widths.map((w) => `${w}ch`).join(" ") + " minmax(0, 1fr)" };
  const shown = [];
  for (let i = first; i < last; i++) {
    shown.push(html`<div key=${i} class="row" role="row" aria-rowindex=${i + 2} style=${{ ...template, top: `${i * rowHeight}px` }}
      onClick=${onPick && (() => onPick(i))}>
      ${columns.map((_, k) => html`<div role="cell" class=${rows[i][k] === null ? "null" : numeric[k] ? "number" : ""}
        title=${cellText(rows[i][k]).length > widths[k] ? cellText(rows[i][k]).slice(0, 2000) : null}>${rows[i][k] === null ? "null" : cellText(rows[i][k])}</div>`)}
    </div>`);
  }
  return html`<div class="grid" role="table" aria-label=${label} aria-rowcount=${rows.length + 1} tabindex="0" ref=${ref}>
    <div class="head" role="rowgroup"><div class="row" role="row" aria-rowindex="1" style=${template}>
      ${columns.map((c, k) => html`<div role="columnheader" class=${numeric[k] ? "number" : ""} title=${c.type || null}>${c.name}</div>`)}
    </div></div>
    <div class="rows" role="rowgroup" style=${{ height: `${rows.length * rowHeight}px` }}>${shown}</div>
  </div>`;
}
