// The nodes of a state: walk from node to node, and search.

import { html, useState, useEffect } from "./vendor/preact.js";
import { call, lines } from "./api.js";
import { Empty, Fail, Field, Icon, Panel, bytes, number, useTask } from "./ui.js";

const pageSize = 200;

// split returns the name and the subscripts of a path such as ^users(7,"a,b").
export function split(path) {
  const open = path.indexOf("(");
  if (!path || open < 0) return path ? [path] : [];
  const parts = path.slice(open + 1, -1).match(/"(?:[^"]|"")*"|[^,]+/g) || [];
  return [path.slice(0, open), ...parts];
}

export const join = ([name, ...subscripts]) => (subscripts.length ? `${name}(${subscripts.join(",")})` : name || "");

// plain returns a subscript without its quotes.
const plain = (subscript) => (subscript.startsWith('"') ? subscript.slice(1, -1).replace(/""/g, '"') : subscript);

export function Nodes({ place, session }) {
  const states = session.pipelines.filter((p) => p.state);
  const units = useTask();
  const [at, setAt] = useState({ state: place.rest[0] || states[0]?.state || "", unit: "", path: "" });
  const [text, setText] = useState("");
  const list = useTask(), search = useTask();
  useEffect(() => {
    if (!states.length) return;
    units.run(async (signal) => {
      const all = await call("admin/states", {}, { signal });
      const first = all.find((u) => u.state === at.state) || all[0];
      if (first) setAt((now) => ({ ...now, state: first.state, unit: first.unit }));
      return all;
    });
  }, []);
  const load = (from, before = []) => list.run(async (signal) => {
    const q = { state: at.state, unit: at.unit, path: at.path };
    const [own, children] = await Promise.all([
      at.path && !before.length ? lines("admin/state-nodes", { ...q, one: true }, { signal }) : null,
      lines("admin/state-nodes", { ...q, children: true, limit: pageSize + 1, ...(from ? { from } : {}) }, { signal }),
    ]);
    const found = children.found.slice(0, pageSize), next = children.found[pageSize];
    return { own: own ? own.found[0] : list.value?.own, children: [...before, ...found], next: next && plain(split(next.path).at(-1)) };
  });
  useEffect(() => {
    search.setValue(null);
    if (at.unit) load();
  }, [at.state, at.unit, at.path]);
  const go = (path) => setAt({ ...at, path });
  const find = (event) => {
    event.preventDefault();
    search.run((signal) => call("search-nodes", { state: at.state, unit: at.unit, path: at.path, text }, { signal }));
  };
  if (!states.length) {
    return html`<h1>Nodes</h1><${Panel} title="State"><${Empty} title="No pipeline has a state">Give a pipeline the key <code>state</code>, and its script can remember nodes.<//><//>`;
  }
  const own = (units.value || []).filter((u) => u.state === at.state);
  const unit = own.find((u) => u.unit === at.unit);
  const steps = split(at.path);
  return html`
    <h1>Nodes</h1>
    <${Panel} title="State" actions=${unit && html`<span class="muted">kept in ${unit.home}, last taken over by ${unit.owner || "nobody"}; ${bytes(unit.note_bytes)} of notes</span>`}>
      <form class="filters" onSubmit=${find}>
        <${Field} label="State"><select value=${at.state} onChange=${(e) => setAt({ state: e.target.value, unit: (units.value || []).find((u) => u.state === e.target.value)?.unit || "", path: "" })}>${states.map((p) => html`<option key=${p.state}>${p.state}</option>`)}</select><//>
        <${Field} label="Unit"><select value=${at.unit} onChange=${(e) => setAt({ ...at, unit: e.target.value, path: "" })}>${own.map((u) => html`<option key=${u.unit}>${u.unit}</option>`)}</select><//>
        <${Field} label=${at.path ? `Search below ${at.path}` : "Search in all nodes"}><input type="search" value=${text} placeholder="in paths and values" onInput=${(e) => setText(e.target.value)} /><//>
        <button type="submit" disabled=${!text || !at.unit || search.busy}><${Icon} name="search" />Search</button>
      </form>
      <${Fail} error=${units.error || list.error || search.error} />
      ${units.value && own.length === 0 && html`<${Empty} title="No unit yet">A unit begins with the first event of its partition.<//>`}
    <//>
    ${search.value && html`<${Panel} title=${`${number(search.value.nodes.length)} nodes with “${text}”`} actions=${html`<span class="muted">${number(search.value.scanned)} nodes searched${search.value.done ? "" : "; there are more"}</span><button class="quiet" onClick=${() => search.setValue(null)}>Close</button>`}>
      <${NodeTable} label="Search results" nodes=${search.value.nodes} onOpen=${go} name=${(n) => n.path} />
      ${search.value.nodes.length === 0 && html`<${Empty} title="No node matches">Neither a path nor a value has this text.<//>`}
    <//>`}
    ${list.value && at.unit && html`<${Panel} title="Walk">
      <nav class="path" aria-label="Path"><button onClick=${() => go("")}>all</button>${steps.map((step, i) => html`<span class="muted" aria-hidden="true">/</span><button key=${i} aria-current=${i === steps.length - 1 ? "location" : null} onClick=${() => go(join(steps.slice(0, i + 1)))}>${step}</button>`)}</nav>
      ${list.value.own && html`<dl class="facts"><dt>Value</dt><dd class="mono">${JSON.stringify(list.value.own.value)}</dd><dt>Type</dt><dd>${list.value.own.type}</dd></dl>`}
      <${NodeTable} label="Children" nodes=${list.value.children} onOpen=${go} name=${(n) => split(n.path).at(-1)} />
      ${list.value.children.length === 0 && html`<${Empty} title="No children">${at.path ? "This is a leaf." : "The state is empty."}<//>`}
      ${list.value.next && html`<div class="pad"><button disabled=${list.busy} onClick=${() => load(list.value.next, list.value.children)}>More</button></div>`}
    <//>`}`;
}

const NodeTable = ({ label, nodes, onOpen, name }) => nodes.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table class="tree">
  <thead><tr><th>Node</th><th>Value</th><th>Type</th></tr></thead>
  <tbody>${nodes.map((n) => html`<tr key=${n.path}><td><a href="#" onClick=${(e) => (e.preventDefault(), onOpen(n.path))}>${name(n)}</a></td>
    <td class="value">${n.type === "absent" ? html`<span class="muted">has children</span>` : JSON.stringify(n.value)}</td><td class="muted">${n.type === "absent" ? "" : n.type}</td></tr>`)}</tbody>
</table></div>`;
