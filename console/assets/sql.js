// SQL over the tables of the event store: an editor, results as rows and as a plot, and the tables.

import { html, useState, useEffect, useMemo, useRef } from "./vendor/preact.js";
import { call, send, parse } from "./api.js";
import { Editor } from "./editor.js";
import { Plot } from "./plot.js";
import { Dialog, Empty, Fail, Field, Grid, Icon, Panel, Tabs, bytes, download, duration, moment, number, short, useStored, useTask } from "./ui.js";

const rowsMax = 10000;
const historyMax = 100;

export function SQL({ place }) {
  const [text, setText] = useStored("perigee.sql", "SELECT table_name, sum(rows) AS rows, format_bytes(sum(bytes)::BIGINT) AS size\nFROM perigee.segments GROUP BY ALL ORDER BY ALL");
  const [past, setPast] = useStored("perigee.sql.history", []);
  const [view, setView] = useState("rows");
  const [detail, setDetail] = useState(null);
  const [showPast, setShowPast] = useState(false);
  const tables = useTask(), names = useTask(), result = useTask(), exporting = useTask();
  const loadTables = () => tables.run(async (signal) => {
    try {
      return (await call("tables", {}, { signal })) || [];
    } catch (error) {
      if (/no event store/.test(error.message)) return [];
      throw error;
    }
  });
  useEffect(() => {
    loadTables();
    names.run((signal) => call("sql-names", {}, { signal }));
  }, []);
  const run = async (sql = text) => {
    const began = performance.now();
    const value = await result.run(async (signal) => {
      const response = await send("query", { sql, format: "json", rows: rowsMax }, { signal });
      return { sql, ...toRows(parse(await response.text())), took: performance.now() - began };
    }, { keep: false });
    if (value) {
      setPast([{ sql, at: new Date().toISOString(), rows: value.rows.length, took: value.took }, ...past.filter((one) => one.sql !== sql)].slice(0, historyMax));
      loadTables();
    }
  };
  const save = (format, type) => exporting.run(async (signal) => {
    const response = await send("query", { sql: result.value.sql, format }, { signal });
    download(`query.${format}`, await response.blob(), type);
    return format;
  });
  const complete = useMemo(() => completion(tables.value || [], names.value), [tables.value, names.value]);
  const chart = useMemo(() => result.value && chartOf(result.value), [result.value]);
  const r = result.value;
  return html`
    <h1>SQL</h1>
    <div class="workbench">
      <${Panel} title="Tables" actions=${html`<button class="quiet" aria-label="Read the tables again" onClick=${loadTables}><${Icon} name="retry" /></button>`}>
        <${Tables} tables=${tables.value} system=${names.value?.tables} error=${tables.error} onOpen=${setDetail} onQuery=${(sql) => (setText(sql), run(sql))} />
      <//>
      <div>
        <${Panel} title="Query" actions=${html`
          <button class="quiet" aria-expanded=${showPast} onClick=${() => setShowPast(!showPast)}>History</button>
          ${result.busy ? html`<button onClick=${result.cancel}>Cancel</button>` : html`<button class="primary" onClick=${() => run()} title="Ctrl+Enter"><${Icon} name="play" />Run</button>`}`}>
          <${Editor} label="SQL" language="sql" height="190px" value=${text} onChange=${setText} onRun=${() => run()} complete=${complete} hint="SELECT …" faultLine=${result.error?.line} />
          ${showPast && html`<ul class="history" aria-label="History">${past.map((one) => html`<li key=${one.at}><button title=${one.sql} onClick=${() => setText(one.sql)}>
            <span class="muted">${moment(one.at)}</span> <span class="muted">${number(one.rows)} rows</span> ${one.sql.replace(/\s+/g, " ")}</button></li>`)}
            ${past.length === 0 && html`<li class="pad muted">No query was run in this browser yet.</li>`}</ul>`}
        <//>
        <${Panel} title="Result" actions=${r && html`
          <${Tabs} label="View" value=${view} onChange=${setView} all=${[["rows", "Rows"], ["plot", "Plot"]]} />
          ${[["csv", "text/csv"], ["ndjson", "application/x-ndjson"], ["parquet", "application/vnd.apache.parquet"]].map(([format, type]) => html`<button key=${format} class="quiet" disabled=${exporting.busy || !r.rows.length} title="Run again without a limit of rows, and download" onClick=${() => save(format, type)}><${Icon} name="download" />${format}</button>`)}`}>
          <${Fail} error=${result.error || exporting.error} />
          ${result.busy && html`<div class="status" role="status">Running</div>`}
          ${r && html`<div class="status" role="status"><span>${number(r.rows.length)} ${r.rows.length === 1 ? "row" : "rows"}</span>${r.rows.length === rowsMax && html`<span>the first ${number(rowsMax)}: export has all</span>`}<span>${duration(r.took * 1e6)}</span></div>`}
          ${r && view === "rows" && (r.rows.length ? html`<${Grid} label="Result" columns=${r.columns} rows=${r.rows} />` : html`<${Empty} title="No rows">The query returned nothing.<//>`)}
          ${r && view === "plot" && html`<${Chart} chart=${chart} />`}
          ${!r && !result.busy && !result.error && html`<${Empty} title="No result yet">Run a query with Ctrl+Enter. Ctrl+Space completes tables, columns and functions.<//>`}
        <//>
      </div>
    </div>
    ${detail && html`<${TableDetail} t=${detail} onClose=${() => setDetail(null)} />`}`;
}

// toRows makes arrays of objects, whose columns are those of any of them.
function toRows(objects) {
  if (!Array.isArray(objects)) return { columns: [{ name: "result" }], rows: [[objects]] };
  const names = [...new Set(objects.slice(0, 50).flatMap((o) => Object.keys(o)))];
  return { columns: names.map((name) => ({ name })), rows: objects.map((o) => names.map((name) => o[name] ?? null)) };
}

// ---- completion ----

const keywords = ("SELECT FROM WHERE GROUP BY ORDER BY LIMIT HAVING JOIN LEFT ON USING AS AND OR NOT IN IS NULL LIKE BETWEEN CASE WHEN THEN ELSE END " +
  "DISTINCT UNION ALL WITH INTERVAL DESC ASC COUNT FILTER OVER PARTITION QUALIFY SAMPLE SHOW TABLES QUERIES DESCRIBE EXPLAIN").split(" ");

// completion returns a source of tables, columns and functions for the editor.
export function completion(tables, names) {
  const all = [
    ...tables.map((t) => ({ name: t.table, info: `${short(t.rows)} rows`, columns: t.columns || [] })),
    ...(names?.tables || []),
  ];
  const quote = (name) => (/^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replace(/"/g, '""')}"`);
  const tableOptions = all.map((t) => ({ label: t.name, apply: t.name.includes(".") ? t.name : quote(t.name), type: "type", detail: "table", boost: 3 }));
  const functionOptions = (names?.functions || []).map((f) => ({ label: f.name, apply: f.name + "(", type: "function", detail: f.info.length > 40 ? f.info.slice(0, 40) + "…" : f.info, boost: -1 }));
  const keywordOptions = keywords.map((label) => ({ label, type: "keyword" }));
  return (context) => {
    const member = context.matchBefore(/[\w.]+\.\w*/);
    if (member) {
      const [, owner] = /^(.*)\.\w*$/.exec(member.text);
      const inSchema = all.filter((t) => t.name.startsWith(owner + "."));
      const own = all.find((t) => t.name === owner || t.name.endsWith("." + owner));
      const from = member.from + owner.length + 1;
      if (inSchema.length) return { from, options: inSchema.map((t) => ({ label: t.name.slice(owner.length + 1), type: "type", detail: "table" })), validFor: /^\w*$/ };
      if (own) return { from, options: columnOptions([own], quote), validFor: /^\w*$/ };
      return null;
    }
    const word = context.matchBefore(/\w+/);
    if (!word && !context.explicit) return null;
    const sql = context.state.doc.toString().toLowerCase();
    const used = all.filter((t) => sql.includes(t.name.toLowerCase()) || sql.includes(t.name.split(".").pop().toLowerCase()));
    return { from: word ? word.from : context.pos, options: [...columnOptions(used, quote), ...tableOptions, ...keywordOptions, ...functionOptions], validFor: /^\w*$/ };
  };
}

const columnOptions = (tables, quote) => tables.flatMap((t) => t.columns.map((c) => ({ label: c.name, apply: quote(c.name), type: "property", detail: c.type, boost: 5 })));

// ---- plots ----

const isTime = (v) => typeof v === "string" && /^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?(Z|[+-]\d\d(:?\d\d)?)?$/.test(v);
const timeOf = (v) => {
  let text = v.replace(" ", "T");
  if (text.includes("T") && !/(Z|[+-]\d\d(:?\d\d)?)$/.test(text)) text += "Z";
  return new Date(text).getTime() / 1000;
};

// chartOf says how rows can be plotted: over time if a column has times, otherwise as bars.
export function chartOf({ columns, rows }) {
  const some = rows.slice(0, 100);
  const every = (i, is) => some.some((row) => row[i] !== null) && some.every((row) => row[i] === null || is(row[i]));
  const numbers = columns.map((c, i) => ({ ...c, i })).filter(({ i }) => every(i, (v) => typeof v === "number" || /^-?\d{16,}$/.test(v)));
  const time = columns.findIndex((_, i) => every(i, isTime));
  if (!rows.length || !numbers.length) return null;
  const colours = ["--series-1", "--series-2", "--series-3", "--series-5", "--series-4"];
  const series = numbers.slice(0, 5).map(({ name, i }, k) => ({ label: name, colour: colours[k], i }));
  if (time >= 0) {
    const sorted = rows.filter((row) => row[time] !== null).map((row) => [timeOf(row[time]), row]).sort((a, b) => a[0] - b[0]);
    return { kind: "time", title: `by ${columns[time].name}`, data: [sorted.map(([t]) => t), ...series.map(({ i }) => sorted.map(([, row]) => (row[i] === null ? null : Number(row[i]))))], series };
  }
  const label = columns.findIndex((_, i) => !numbers.some((n) => n.i === i));
  const bars = rows.slice(0, 60);
  return {
    kind: "bars", title: label >= 0 ? `by ${columns[label].name}` : "by row", labels: bars.map((row, i) => (label >= 0 ? String(row[label] ?? "null") : String(i + 1))),
    data: [bars.map((_, i) => i), bars.map((row) => Number(row[series[0].i]))], series: series.slice(0, 1), cut: rows.length > bars.length,
  };
}

function Chart({ chart }) {
  if (!chart) return html`<${Empty} title="Nothing to plot">A plot needs a column of numbers, and a column of times or names beside it.<//>`;
  return html`<${Plot} height=${360} title=${chart.title + (chart.cut ? ", the first 60" : "")} data=${chart.data} series=${chart.series.map(({ label, colour }) => ({ label, colour }))} bars=${chart.kind === "bars"} labels=${chart.labels} />`;
}

// ---- tables ----

function Tables({ tables, system, error, onOpen, onQuery }) {
  const Columns = ({ columns }) => html`<ul>${columns.map((c) => html`<li key=${c.name}><span>${c.name}</span><span>${c.type.toLowerCase()}</span></li>`)}</ul>`;
  return html`<div class="tables" tabindex="0" role="region" aria-label="Tables">
    <${Fail} error=${error} />
    ${tables?.length === 0 && html`<p class="pad muted">The event store has no table yet: a pipeline with the sink eventstore makes one.</p>`}
    ${tables?.map((t) => html`<details key=${t.table}><summary><b>${t.table}</b> <span class="muted">${short(t.rows)} rows, ${bytes(t.bytes)}</span></summary>
      <div class="actions"><button class="quiet" onClick=${() => onQuery(`SELECT * FROM "${t.table.replace(/"/g, '""')}" LIMIT 100`)}>First rows</button><button class="quiet" onClick=${() => onOpen(t)}>Segments</button></div>
      <${Columns} columns=${t.columns || []} /></details>`)}
    ${system?.length > 0 && html`<h3>System tables</h3>${system.map((t) => html`<details key=${t.name}><summary title=${t.info}>${t.name}</summary>
      <div class="actions"><button class="quiet" onClick=${() => onQuery(`SELECT * FROM ${t.name} LIMIT 100`)}>First rows</button></div><${Columns} columns=${t.columns} /></details>`)}`}
  </div>`;
}

function TableDetail({ t, onClose }) {
  const files = t.files || [];
  return html`<${Dialog} title=${t.table} onClose=${onClose}>
    <dl class="facts"><dt>Rows</dt><dd>${number(t.rows)}${t.log_rows ? `, ${number(t.log_rows)} of them only in the log` : ""}</dd><dt>Size</dt><dd>${bytes(t.bytes)} in ${number(files.length)} ${files.length === 1 ? "segment" : "segments"}</dd>
      <dt>Event time</dt><dd>${t.time ? `${t.time}, ${moment(t.oldest)} to ${moment(t.newest)}` : "no time column"}</dd><dt>Retention</dt><dd>${t.retention && t.retention !== "0s" ? t.retention : "rows are kept forever"}</dd>
      <dt>Schema</dt><dd>version ${t.schema}, ${t.columns.length} columns</dd>${t.unique && html`<dt>Unique by</dt><dd>${t.unique.key.join(", ")}</dd>`}</dl>
    <div class="scroll" tabindex="0" role="region" aria-label="Segments"><table><thead><tr><th>File</th><th class="number">Rows</th><th class="number">Size</th></tr></thead>
      <tbody>${files.slice(-200).reverse().map((f) => html`<tr key=${f.file}><td class="mono">${f.file}</td><td class="number">${number(f.rows)}</td><td class="number">${bytes(f.bytes)}</td></tr>`)}</tbody></table></div>
    <div class="actions end"><button onClick=${onClose}>Close</button></div>
  <//>`;
}
