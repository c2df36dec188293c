// Dead letters: filter them, look at one with its script, try a change, and retry.

import { html, useState, useEffect, useMemo } from "./vendor/preact.js";
import { call, lines } from "./api.js";
import { Editor } from "./editor.js";
import { Dialog, Empty, Fail, Field, Icon, Panel, ago, moment, number, pretty, useTask } from "./ui.js";
import { Outcome } from "./outcome.js";

const shownMax = 500;

// filterOf returns the filter as the engine takes it, without what is empty.
const filterOf = (f) => Object.fromEntries(Object.entries(f).filter(([, value]) => value));

export function Letters({ place, session }) {
  const [filter, setFilter] = useState({ pipeline: place.rest[0] || "", stage: place.query.get("stage") || "", text: place.query.get("text") || "" });
  const [since, setSince] = useState("");
  const list = useTask(), retry = useTask();
  const [chosen, setChosen] = useState(null);
  const [asking, setAsking] = useState(false);
  const hours = { "1 h": 1, "24 h": 24, "7 d": 168 }[since];
  const request = () => filterOf({ ...filter, since: hours ? new Date(Date.now() - hours * 3600e3).toISOString() : "" });
  const load = () => list.run(async (signal) => {
    const own = request();
    const [count, some] = await Promise.all([
      call("admin/count-dead-letters", own, { signal }), lines("admin/dead-letters", own, { signal, limit: shownMax }),
    ]);
    return { count, letters: some.found, filter: own };
  });
  useEffect(() => {
    const timer = setTimeout(load, 200);
    return () => clearTimeout(timer);
  }, [filter, since]);
  const found = list.value?.letters || [];
  const letter = found.find((l) => l.id === chosen) || found[0];
  const again = async (ids) => {
    await retry.run((signal) => call("admin/retry-dead-letters", ids ? { ids } : list.value.filter, { signal }));
    setAsking(false);
    load();
  };
  const set = (key) => (event) => setFilter({ ...filter, [key]: event.target.value });
  return html`
    <h1>Dead letters</h1>
    <${Panel} title=${list.value ? `${number(list.value.count)} ${list.value.count === 1 ? "event" : "events"}` : "Events"} actions=${html`
      <button class="quiet" onClick=${load} disabled=${list.busy}><${Icon} name="retry" />Read again</button>
      <button disabled=${!found.length || retry.busy} onClick=${() => setAsking(true)}>Retry all ${list.value ? number(list.value.count) : ""}</button>`}>
      <div class="filters">
        <${Field} label="Pipeline"><select value=${filter.pipeline} onChange=${set("pipeline")}><option value="">all</option>${session.pipelines.map((p) => html`<option key=${p.name}>${p.name}</option>`)}</select><//>
        <${Field} label="Stage"><select value=${filter.stage} onChange=${set("stage")}><option value="">all</option>${["parse", "script", "column", "sink", "damaged"].map((s) => html`<option key=${s}>${s}</option>`)}</select><//>
        <${Field} label="Stored within"><select value=${since} onChange=${(e) => setSince(e.target.value)}><option value="">any time</option><option>1 h</option><option>24 h</option><option>7 d</option></select><//>
        <${Field} label="Text in the error or the event"><input type="search" value=${filter.text} onInput=${set("text")} /><//>
      </div>
      <${Fail} error=${list.error || retry.error} />
    <//>
    ${retry.value && html`<div class="notice good" role="status">${number(retry.value.queued)} queued: their pipelines read them like new events.${retry.value.uncommitted ? ` ${number(retry.value.uncommitted)} skipped: their batch is not committed, so they are read again anyway.` : ""}</div>`}
    ${asking && html`<${Dialog} title=${`Retry ${number(list.value.count)} dead letters?`} onClose=${() => setAsking(false)}>
      <p>All that match the filter go to the queues of their pipelines, which read them like new events. Those that fail again come back here.</p>
      <div class="actions end"><button onClick=${() => setAsking(false)}>Cancel</button><button class="primary" disabled=${retry.busy} onClick=${() => again(null)}>Retry all</button></div>
    <//>`}
    ${list.value && found.length === 0 && html`<${Panel} title="Events"><${Empty} title="No dead letters">Every event that matches this filter was delivered.<//><//>`}
    ${found.length > 0 && html`<div class="split">
      <${Panel} title=${list.value.count > found.length ? `The first ${found.length}` : "Events"}><ul class="letters">${found.map((l) => html`<li key=${l.id}>
        <button aria-current=${l === letter} onClick=${() => setChosen(l.id)}>
          <span class="error">${l.error.split("\n")[0]}</span>
          <span class="meta"><span class="badge bad plain">${l.stage}</span>${l.pipeline}${l.sink ? ` → ${l.sink}` : ""}<span title=${moment(l.time)}>${ago(l.time)}</span>${l.retried > 0 && html`<span>retried ${l.retried}×</span>`}</span>
        </button></li>`)}</ul><//>
      <div><${Letter} key=${letter.id} l=${letter} onRetry=${() => again([letter.id])} busy=${retry.busy} /></div>
    </div>`}`;
}

function Letter({ l, onRetry, busy }) {
  const binary = l.original === undefined && l.original_base64;
  const original = l.original ?? (l.original_base64 ? atob(l.original_base64) : "");
  const [edited, setEdited] = useState(() => pretty(original));
  const code = useTask(), trial = useTask();
  const [script, setScript] = useState(null);
  useEffect(() => {
    code.run((signal) => call("admin/running-code", { pipeline: l.pipeline }, { signal }));
  }, []);
  const text = useMemo(() => decode(code.value), [code.value]);
  const run = () => trial.run((signal) => {
    let events = edited;
    try {
      JSON.parse(edited);
      events = edited.replace(/\n\s*/g, ""); // the engine reads a line
    } catch { /* not JSON: shown unchanged */ }
    return call("try", { pipeline: l.pipeline, script, events, raw: true, name: "" }, { signal });
  });
  return html`
    <${Panel} title=${`${l.partition} : ${number(l.position)}`} actions=${html`<button class="primary" disabled=${busy} onClick=${onRetry}><${Icon} name="retry" />Retry this event</button>`}>
      <dl class="facts"><dt>Failed in</dt><dd>${l.stage}${l.sink ? ` of ${l.sink}` : ""}</dd><dt>First, last</dt><dd>${moment(l.first)}, ${moment(l.time)}</dd>
        <dt>Script</dt><dd class="mono">${l.script || "–"}</dd><dt>ID</dt><dd class="mono">${l.id}</dd></dl>
    <//>
    <${Panel} title="Error">
      <pre class="document">${l.error}${l.traceback ? `\n${l.traceback}` : ""}</pre>
      ${text && html`<${SourceLines} files=${text} error=${`${l.error}\n${l.traceback || ""}`} />`}
    <//>
    <${Panel} title="Original event" actions=${binary && html`<span class="muted">not UTF-8, shown by bytes</span>`}><pre class="document">${pretty(original)}</pre><//>
    <${Panel} title="Edit and try" actions=${html`
      ${text && html`<button class="quiet" onClick=${() => setScript(script === null ? text.own : null)}>${script === null ? "Change the script too" : "Use the running script"}</button>`}
      <button disabled=${trial.busy} onClick=${run}>Try</button>`}>
      <p class="pad muted">Runs the event through the script and the columns of each sink. Nothing is stored.</p>
      ${script !== null && html`<${Editor} label="Script" language="lua" height="240px" value=${script} onChange=${setScript} onRun=${run} />`}
      <${Editor} label="Event" language="json" height="200px" value=${edited} onChange=${setEdited} onRun=${run} />
      <${Fail} error=${trial.error} />
      ${trial.value && html`<${Outcome} r=${trial.value} />`}
    <//>`;
}

// decode returns the text of the running script, and of the files that it requires, by name.
function decode(code) {
  if (!code?.text) return null;
  const read = (base64) => new TextDecoder().decode(Uint8Array.from(atob(base64), (c) => c.charCodeAt(0)));
  const files = { [code.name]: read(code.text) };
  for (const [name, text] of Object.entries(code.files || {})) files[name] = read(text);
  return { own: files[code.name], files };
}

const around = 3;

// SourceLines shows the lines of the script that an error names.
function SourceLines({ files, error }) {
  const places = [];
  for (const [, name, line] of error.matchAll(/([^\s"'()[\]]+?):(\d+):/g)) {
    const key = Object.keys(files.files).find((known) => known === name || known.endsWith("/" + name) || name.endsWith("/" + known));
    if (key && !places.some((p) => p.key === key && p.line === Number(line))) places.push({ key, line: Number(line) });
  }
  return places.slice(0, 4).map(({ key, line }) => {
    const all = files.files[key].split("\n");
    const first = Math.max(1, line - around);
    return html`<div class="source-lines" key=${key + line}><div><span></span><span>${key}, as it runs now</span></div>
      ${all.slice(first - 1, line + around).map((text, i) => html`<div key=${i} class=${first + i === line ? "at" : ""}><span>${first + i}</span><code>${text}</code></div>`)}</div>`;
  });
}
