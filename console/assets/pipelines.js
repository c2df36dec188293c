// Pipelines: what they do now, and one of them in detail.

import { html, useState, useEffect, useRef } from "./vendor/preact.js";
import { call } from "./api.js";
import { Plot } from "./plot.js";
import { Dialog, Empty, Fail, Field, Figure, Icon, Panel, Sparkline, State, duration, moment, number, percent, short, useTask } from "./ui.js";

const keptMax = 900; // readings of a pipeline

// The readings of each pipeline, while a page showed it: [times, in, out, lag, p50, p99].
const history = new Map();

function remember({ time, pipelines }) {
  const at = new Date(time).getTime() / 1000;
  for (const p of pipelines) {
    const kept = history.get(p.status.pipeline) || [[], [], [], [], [], []];
    const last = kept[0].at(-1);
    if (last === at) continue;
    const gap = last && at - last > 5;
    const add = (values) => values.forEach((v, i) => kept[i].push(v));
    if (gap) add([last + 1, null, null, null, null, null]);
    add([at, p.in, p.out, p.lag, p.p50 || null, p.p99 || null]);
    history.set(p.status.pipeline, kept.map((values) => values.slice(-keptMax)));
  }
}

// useRates reads the rates once a second, while the page is in view.
function useRates() {
  const [state, setState] = useState({ value: null, error: null });
  useEffect(() => {
    const stop = new AbortController();
    let timer;
    const tick = async () => {
      if (!document.hidden) {
        try {
          const value = await call("pipelines", {}, { signal: stop.signal });
          remember(value);
          setState({ value, error: null });
        } catch (error) {
          if (!stop.signal.aborted) setState((s) => ({ ...s, error }));
        }
      }
      if (!stop.signal.aborted) timer = setTimeout(tick, 1000);
    };
    tick();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, []);
  return state;
}

export function Pipelines({ place, session }) {
  const { value, error } = useRates();
  const name = place.rest[0];
  if (!value) return html`<h1>Pipelines</h1>${error ? html`<${Fail} error=${error} />` : html`<div class="loading">Loading</div>`}`;
  const one = name && value.pipelines.find((p) => p.status.pipeline === name);
  if (one) return html`<${Pipeline} key=${name} p=${one} about=${session.pipelines.find((p) => p.name === name)} session=${session} error=${error} />`;
  const all = value.pipelines;
  const sum = (of) => all.reduce((n, p) => n + of(p), 0);
  const well = all.filter((p) => p.status.state === "running").length;
  return html`
    <h1>Pipelines</h1>
    <${Fail} error=${error} />
    <div class="figures">
      <${Figure} label="Running" value=${`${well} of ${all.length}`} tone=${well === all.length ? "" : "warn"} />
      <${Figure} label="Events in" value=${short(sum((p) => p.in))} note="per second" />
      <${Figure} label="Events out" value=${short(sum((p) => p.out))} note="per second" />
      <${Figure} label="Lag" value=${short(sum((p) => p.lag))} note="events" />
      <${Figure} label="Dead letters" value=${short(sum((p) => p.status.dead_letters))} note="stored" tone=${sum((p) => p.dead) > 0 ? "bad" : ""} />
    </div>
    <${Panel} title="All pipelines"><div class="scroll" tabindex="0" role="region" aria-label="All pipelines"><table>
      <thead><tr><th>Pipeline</th><th>State</th><th class="number">In/s</th><th class="number">Out/s</th><th>Out, two minutes</th><th class="number">Lag</th>
        <th class="number">p50</th><th class="number">p99</th><th class="number">Script</th><th class="number">Sinks</th><th class="number">Dead letters</th></tr></thead>
      <tbody>${all.map((p) => html`<tr key=${p.status.pipeline}>
        <td><a href=${`#/pipelines/${encodeURIComponent(p.status.pipeline)}`}>${p.status.pipeline}</a>
          ${(p.status.reason || p.status.why_empty) && html`<div class="why">${p.status.reason || p.status.why_empty}</div>`}</td>
        <td><${State} state=${p.status.state} /></td>
        <td class="number">${short(p.in)}</td><td class="number">${short(p.out)}</td>
        <td><${Sparkline} values=${p.trend} label=${`${p.status.pipeline}: ${short(p.out)} events out per second`} /></td>
        <td class="number">${short(p.lag)}</td><td class="number">${duration(p.p50)}</td><td class="number">${duration(p.p99)}</td>
        <td class="number">${percent(p.script)}</td><td class="number">${percent(p.commit)}</td>
        <td class="number">${p.status.dead_letters > 0 ? html`<a href=${`#/letters/${encodeURIComponent(p.status.pipeline)}`}>${short(p.status.dead_letters)}</a>` : "0"}</td>
      </tr>`)}</tbody>
    </table></div><//>`;
}

function Pipeline({ p, about, session, error }) {
  const s = p.status;
  const [t, rateIn, rateOut, lag, p50, p99] = history.get(s.pipeline) || [[], [], [], [], [], []];
  const operation = useTask();
  const [asking, setAsking] = useState(false);
  const paused = s.state === "paused";
  const resume = () => operation.run((signal) => call("admin/resume", { pipeline: s.pipeline }, { signal }));
  return html`
    <div class="title-row"><div>
      <div class="crumbs"><a href="#/pipelines">Pipelines</a></div>
      <h1>${s.pipeline} <${State} state=${s.state} /></h1>
      ${about && html`<p class="sub">${about.source} → ${about.has_script ? "script → " : ""}${about.sinks.map((one) => (one.name === one.kind ? one.kind : `${one.name} (${one.kind})`)).join(", ")}</p>`}
    </div><div class="actions">
      ${paused
        ? html`<button class="primary" disabled=${operation.busy} onClick=${resume}><${Icon} name="play" />Resume</button>`
        : html`<button disabled=${operation.busy} onClick=${() => setAsking(true)}><${Icon} name="pause" />Pause</button>`}
    </div></div>
    ${asking && html`<${Pause} pipeline=${s.pipeline} operation=${operation} onClose=${() => setAsking(false)} />`}
    <${Fail} error=${error || operation.error} />
    ${s.reason && html`<div class="notice ${paused ? "warn" : "bad"}">${s.reason}${s.since && html`<span class="muted"> since ${moment(s.since)}</span>`}${s.next && html`<span class="muted">, next trial ${moment(s.next)}</span>`}</div>`}
    ${s.why_empty && html`<div class="notice warn">${s.why_empty}</div>`}
    <div class="figures">
      <${Figure} label="In" value=${short(p.in)} note="events per second" />
      <${Figure} label="Out" value=${short(p.out)} note="events per second" />
      <${Figure} label="Lag" value=${short(p.lag)} note="events" />
      <${Figure} label="p99" value=${duration(p.p99)} note="from read to every sink" />
      <${Figure} label="Script" value=${percent(p.script)} note="of one core" />
      <${Figure} label="Waiting" value=${percent(p.waits)} note="reading for commits" />
      <${Figure} label="Dead letters" value=${short(s.dead_letters)} note=${html`<a href=${`#/letters/${encodeURIComponent(s.pipeline)}`}>show them</a>`} tone=${p.dead > 0 ? "bad" : ""} />
    </div>
    <div class="plots">
      <${Panel} title="Rates"><${Plot} live title="events per second" data=${[t, rateIn, rateOut]} series=${[{ label: "in", colour: "--series-1", fill: true }, { label: "out", colour: "--series-2" }]} /><//>
      <${Panel} title="Lag"><${Plot} live title="events" data=${[t, lag]} series=${[{ label: "lag", colour: "--series-3", fill: true }]} /><//>
      <${Panel} title="Latency"><${Plot} live title="delivery" format="duration" data=${[t, p50, p99]} series=${[{ label: "p50", colour: "--series-4" }, { label: "p99", colour: "--series-5" }]} /><//>
    </div>
    <div class="columns">
      <${Panel} title="Sinks"><div class="scroll" tabindex="0" role="region" aria-label="Sinks"><table>
        <thead><tr><th>Sink</th><th class="number">Rows/s</th><th class="number">Rows</th><th class="number">Lag</th><th class="number">p50</th><th class="number">p99</th><th class="number">Busy</th><th class="number">Retries</th></tr></thead>
        <tbody>${p.sinks.map((one) => html`<tr key=${one.status.name}><td>${one.status.name}</td><td class="number">${short(one.rate)}</td><td class="number">${number(one.status.rows)}</td>
          <td class="number">${short(one.status.lag)}</td><td class="number">${duration(one.p50)}</td><td class="number">${duration(one.p99)}</td><td class="number">${percent(one.busy)}</td><td class="number">${number(one.status.retries)}</td></tr>`)}</tbody>
      </table></div><//>
      <${Panel} title="Since the start"><dl class="facts">
        <dt>Read</dt><dd>${number(s.read)}</dd><dt>Delivered</dt><dd>${number(s.events)}</dd><dt>Dropped by the script</dt><dd>${number(s.dropped)}</dd>
        <dt>Dead letters</dt><dd>${number(s.dead)}</dd><dt>Failed attempts</dt><dd>${number(p.retries)}</dd>
        <dt>Partitions</dt><dd>${s.open_partitions} open${s.workers ? `, ${s.leased_partitions} leased by this worker of ${s.workers}, ${s.other_partitions} by others` : ""}</dd>
        ${s.shadow && html`<dt>Shadow</dt><dd>${s.shadow.state}: ${number(s.shadow.different)} of ${number(s.shadow.events)} events differ</dd>`}
      </dl><//>
    </div>
    <${Positions} pipeline=${s.pipeline} />
    ${about?.has_script && session.measures && html`<${Measure} pipeline=${s.pipeline} />`}`;
}

function Pause({ pipeline, operation, onClose }) {
  const [reason, setReason] = useState("");
  const submit = async (event) => {
    event.preventDefault();
    await operation.run((signal) => call("admin/pause", { pipeline, reason: reason || "paused in the console" }, { signal }));
    onClose();
  };
  return html`<${Dialog} title=${`Pause ${pipeline}?`} onClose=${onClose}><form onSubmit=${submit}>
    <p>It stops reading and stays paused after a restart, until someone resumes it. Batches in flight are delivered.</p>
    <${Field} label="Reason"><input value=${reason} placeholder="paused in the console" onInput=${(e) => setReason(e.target.value)} /><//>
    <div class="actions end"><button type="button" onClick=${onClose}>Cancel</button><button class="primary" type="submit">Pause</button></div>
  </form><//>`;
}

function Positions({ pipeline }) {
  const task = useTask();
  const load = () => task.run((signal) => call("admin/positions", { pipeline }, { signal }));
  useEffect(() => {
    load();
  }, []);
  return html`<${Panel} title="Positions" actions=${html`<button class="quiet" disabled=${task.busy} onClick=${load}><${Icon} name="retry" />Read again</button>`}>
    <${Fail} error=${task.error} />
    ${task.value && task.value.length === 0 && html`<p class="pad muted">No sink of this pipeline stores positions, or none is committed yet.</p>`}
    ${task.value?.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Positions"><table>
      <thead><tr><th>Partition</th><th>Sink</th><th class="number">Next</th><th class="number">Events</th><th>Committed</th><th>In the source</th><th class="number">Lag</th></tr></thead>
      <tbody>${task.value.map((one) => html`<tr key=${one.partition + "/" + one.sink}><td class="mono">${one.partition}</td><td>${one.sink}</td><td class="number">${number(one.next)}</td>
        <td class="number">${number(one.events)}</td><td class="mono">${one.committed}</td><td class="mono">${one.source || "–"}</td><td class="number">${one.lag == null ? "–" : number(one.lag)}</td></tr>`)}</tbody>
    </table></div>`}
  <//>`;
}

function Measure({ pipeline }) {
  const task = useTask();
  const run = () => task.run((signal) => call("measure", { pipeline, script: null, events: "", raw: false, name: "" }, { signal }));
  return html`<${Panel} title="Script by line" actions=${html`<button disabled=${task.busy} onClick=${run}>${task.busy ? "Measuring" : "Measure"}</button>`}>
    <${Fail} error=${task.error} />
    ${!task.value && !task.error && html`<p class="pad muted">Takes events that the source reads now, runs the script on them in a VM of its own, and shows where its time goes and what LuaJIT does not compile.</p>`}
    ${task.value && html`<${MeasuredScript} m=${task.value} />`}
  <//>`;
}

// MeasuredScript shows a script with the share of the time, and the reasons not to compile, of each line.
export function MeasuredScript({ m }) {
  const own = new Map(m.lines.filter((l) => l.file === "").map((l) => [l.line, l]));
  const others = m.lines.filter((l) => l.file !== "");
  const most = Math.max(...m.lines.map((l) => l.share), 1e-9);
  const perEvent = m.took / Math.max(1, m.events);
  const aborts = m.lines.reduce((n, l) => n + (l.aborts || []).filter((a) => !a.minor).length, 0);
  const detail = (l) => l?.aborts?.map((a, i) => html`<div key=${i} class=${a.minor ? "abort minor" : "abort"}>${a.explanation}<span class="muted"> (${a.reason}, ${a.count}×)</span></div>`);
  return html`<div class="pad">
    <p>${m.sample}: <b>${duration(perEvent)}</b> per event, ${m.traces} compiled traces, ${aborts === 0 ? "no line that the compiler gives up on" : html`<b class="bad-text">${aborts} reasons not to compile</b>`}.
      <span class="muted"> Shares are of a run in the interpreter (${duration(m.interpreted / Math.max(1, m.events))} per event); what LuaJIT compiles is faster.</span></p>
    <div class="listing scroll" tabindex="0" role="region" aria-label="The script by line"><table>
      <thead class="visually-hidden"><tr><th>Share</th><th>Runs</th><th>Line</th><th>Code</th></tr></thead>
      <tbody>${m.text.split("\n").map((text, i) => {
        const l = own.get(i + 1);
        return html`<tr key=${i} class=${l?.aborts?.some((a) => !a.minor) ? "aborted" : ""}>
          <td class="share">${l?.share ? html`<i style=${{ width: `${(100 * l.share) / most}%` }}></i><span>${(100 * l.share).toFixed(1)} %</span>` : ""}</td>
          <td class="number muted">${l?.count ? short(l.count) : ""}</td><td class="number faint">${i + 1}</td><td><code>${text}</code>${detail(l)}</td></tr>`;
      })}</tbody></table></div>
    ${others.length > 0 && html`<h3>Required files</h3><ul>${others.map((l, i) => html`<li key=${i}><code>${l.file}:${l.line}</code> ${(100 * l.share).toFixed(1)} %${detail(l)}</li>`)}</ul>`}
  </div>`;
}
