// The outcome of a trial of a script.

import { html, useState } from "./vendor/preact.js";
import { Empty, Grid, Tabs, bytes, duration, number, pretty } from "./ui.js";

export function Outcome({ r }) {
  const [view, setView] = useState("events");
  const [sink, setSink] = useState(0);
  const of = (i) => r.rows.filter((row) => row.sink === i);
  return html`
    <div class="status" role="status">
      <span>${number(r.events)} in</span><span>${number(r.rows.length)}${r.more ? " and more" : ""} out</span>${r.dropped > 0 && html`<span>${number(r.dropped)} dropped</span>`}
      ${r.dead.length > 0 && html`<span class="bad-text">${number(r.dead.length)} failed</span>`}
      <span title="Time to run all events, once, in a new VM">${duration(r.took)}${r.events > 1 ? `, ${duration(r.took / r.events)} each` : ""}</span>
      <span title="Memory of the script's VM">${bytes(r.memory)}</span>
      <span class="actions"><${Tabs} label="View" value=${view} onChange=${setView} all=${[["events", "Events"], ["columns", "Columns"], ["log", `Log ${r.log.length || ""}`]]} /></span>
    </div>
    ${view === "events" && html`<div class="results" tabindex="0" role="region" aria-label="Results">
      ${r.dead.map((d, i) => html`<div class="outcome" key=${"d" + i}><div class="meta"><span class="badge">${d.stage}</span>event ${d.event + 1}${d.sink ? ` → ${d.sink}` : ""}</div><pre class="bad-text">${d.error}${d.traceback ? `\n${d.traceback}` : ""}</pre></div>`)}
      ${r.rows.slice(0, 200).map((row, i) => html`<div class="outcome" key=${i}><div class="meta">event ${row.event + 1} → ${r.sinks[row.sink].name}</div><pre>${pretty(JSON.stringify(row.row))}</pre></div>`)}
      ${r.rows.length > 200 && html`<p class="pad muted">The columns show the rest.</p>`}
      ${r.rows.length === 0 && r.dead.length === 0 && html`<${Empty} title="Nothing came out">The script dropped every event.<//>`}
    </div>`}
    ${view === "columns" && html`<div>
      ${r.sinks.length > 1 && html`<div class="pad"><${Tabs} label="Sink" value=${sink} onChange=${setSink} all=${r.sinks.map((s, i) => [i, s.name])} /></div>`}
      <${SinkRows} key=${sink} sink=${r.sinks[sink]} rows=${of(sink)} />
    </div>`}
    ${view === "log" && html`<div class="results" tabindex="0" role="region" aria-label="Log">
      ${r.log.map((line, i) => html`<div class="outcome" key=${i}><div class="meta"><span class="badge plain">${line.level}</span>${line.at}</div><pre>${line.text}</pre></div>`)}
      ${r.log.length === 0 && html`<${Empty} title="No log lines">The script logged nothing.<//>`}
    </div>`}`;
}

function SinkRows({ sink, rows }) {
  const names = [...new Set([...(sink.columns || []).map((c) => c.name), ...rows.flatMap((r) => Object.keys(r.row ?? {}))])];
  const types = Object.fromEntries((sink.columns || []).map((c) => [c.name, c.type]));
  if (!rows.length) return html`<${Empty} title="No rows">${sink.name} gets nothing.<//>`;
  return html`<${Grid} label=${`Rows of ${sink.name}`} columns=${names.map((name) => ({ name, type: types[name] }))} rows=${rows.map((r) => names.map((name) => r.row?.[name] ?? null))} />`;
}
