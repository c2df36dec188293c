// A script and events beside each other, and what comes out as one types.

import { html, useState, useEffect } from "./vendor/preact.js";
import { call } from "./api.js";
import { Editor } from "./editor.js";
import { Outcome } from "./outcome.js";
import { MeasuredScript } from "./pipelines.js";
import { Dialog, Empty, Fail, Field, Panel, download, useStored, useTask } from "./ui.js";

const example = `function main(event)
  event.domain = event.email:match("@(.+)$")
  if not event.domain then error("no address: " .. event.email) end
  return event
end
`;

const exampleEvents = `{"email": "ada@example.com", "n": 1}
{"email": "grace@navy.example", "n": 2}
{"email": "nobody", "n": 3}
`;

const typingTime = 250; // ms after which a change is tried

export function Playground({ place, session }) {
  const scripts = session.pipelines.filter((p) => p.has_script);
  const [pipeline, setPipeline] = useState(place.rest[0] && scripts.some((p) => p.name === place.rest[0]) ? place.rest[0] : "");
  const [drafts, setDrafts] = useStored("perigee.playground", {});
  const draft = drafts[pipeline] || {};
  const running = useTask(), trial = useTask(), measuring = useTask();
  const [saving, setSaving] = useState(false);
  const script = draft.script ?? (pipeline ? running.value ?? "" : example);
  const events = draft.events ?? exampleEvents;
  const change = (what) => setDrafts({ ...drafts, [pipeline]: { ...draft, ...what } });
  useEffect(() => {
    measuring.setValue(null);
    running.setValue(null);
    if (pipeline) {
      running.run(async (signal) => {
        const code = await call("admin/running-code", { pipeline }, { signal });
        return code.text ? new TextDecoder().decode(Uint8Array.from(atob(code.text), (c) => c.charCodeAt(0))) : "";
      });
    }
  }, [pipeline]);
  const ready = !pipeline || running.value !== null;
  const request = (more) => ({ pipeline, script: script, events, raw: false, name: "", ...more });
  useEffect(() => {
    if (!ready) return undefined;
    const timer = setTimeout(() => trial.run((signal) => call("try", request(), { signal })), typingTime);
    return () => clearTimeout(timer);
  }, [script, events, pipeline, ready]);
  const about = session.pipelines.find((p) => p.name === pipeline);
  return html`
    <div class="title-row"><h1>Playground</h1><div class="actions">
      <label class="actions"><span class="muted">Sinks and columns of</span><select value=${pipeline} onChange=${(e) => setPipeline(e.target.value)}>
        <option value="">no pipeline</option>${scripts.map((p) => html`<option key=${p.name} value=${p.name}>${p.name}</option>`)}</select></label>
      ${draft.script !== undefined && html`<button class="quiet" onClick=${() => change({ script: undefined })}>${pipeline ? "Back to the running script" : "Back to the example"}</button>`}
      ${session.measures && html`<button disabled=${measuring.busy || !ready} onClick=${() => measuring.run((signal) => call("measure", request(), { signal }))}>${measuring.busy ? "Measuring" : "Measure by line"}</button>`}
      <button disabled=${!pipeline || !trial.value} title=${pipeline ? null : "Choose a pipeline first"} onClick=${() => setSaving(true)}>Save as a test case</button>
    </div></div>
    ${about?.state && html`<div class="notice warn">The state begins empty in every trial; the state of the pipeline is not read.</div>`}
    <div class="bench">
      <${Panel} title="Script"><${Editor} label="Script" language="lua" height="340px" value=${script} onChange=${(text) => text !== script && change({ script: text })} faultLine=${trial.error?.line} /><//>
      <${Panel} title="Events" actions=${html`<span class="muted">JSON documents, or a line of text each</span>`}><${Editor} label="Events" language="text" height="340px" value=${events} onChange=${(text) => text !== events && change({ events: text })} /><//>
    </div>
    <${Panel} title="Output">
      <${Fail} error=${running.error || trial.error} />
      ${!trial.error && trial.value && html`<${Outcome} r=${trial.value} />`}
      ${!trial.value && !trial.error && html`<${Empty} title="Nothing ran yet">Change the script or the events.<//>`}
    <//>
    ${(measuring.error || measuring.value) && html`<${Panel} title="Script by line"><${Fail} error=${measuring.error} />${measuring.value && html`<${MeasuredScript} m=${measuring.value} />`}<//>`}
    ${saving && html`<${Save} request=${request} onClose=${() => setSaving(false)} />`}`;
}

function Save({ request, onClose }) {
  const [name, setName] = useState("");
  const task = useTask();
  const submit = (event) => {
    event.preventDefault();
    task.run((signal) => call("test-case", request({ name }), { signal }));
  };
  return html`<${Dialog} title="Save as a test case" onClose=${onClose}>
    <form onSubmit=${submit}>
      <p>The case has these events and expects what comes out of them now. Put the file beside the configuration, or add its case to the one there, and run <code>perigee test</code>.</p>
      <${Field} label="Name of the case"><input required value=${name} placeholder="takes the domain of an address" onInput=${(e) => setName(e.target.value)} /><//>
      <${Fail} error=${task.error} />
      ${task.value && html`<pre class="document listing" tabindex="0">${task.value.text}</pre>`}
      <div class="actions end"><button type="button" onClick=${onClose}>Close</button>
        ${task.value && html`<button type="button" class="primary" onClick=${() => download(task.value.file, task.value.text, "application/yaml")}>Download ${task.value.file}</button>`}
        ${!task.value && html`<button class="primary" type="submit" disabled=${task.busy}>Make the case</button>`}</div>
    </form>
  <//>`;
}
