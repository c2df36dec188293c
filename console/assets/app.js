// The console: asks for a token if the engine wants one, and shows one page.

import { html, render, useState, useEffect } from "./vendor/preact.js";
import { call, setToken } from "./api.js";
import { Icon, Fail, useTask } from "./ui.js";
import { Pipelines } from "./pipelines.js";

const pages = {
  pipelines: { title: "Pipelines", show: Pipelines },
  letters: { title: "Dead letters", load: () => import("./letters.js").then((m) => m.Letters) },
  sql: { title: "SQL", load: () => import("./sql.js").then((m) => m.SQL) },
  playground: { title: "Playground", load: () => import("./playground.js").then((m) => m.Playground) },
  nodes: { title: "Nodes", load: () => import("./nodes.js").then((m) => m.Nodes) },
};

// readPlace returns the page of the address, such as #/letters/mails?stage=script.
function readPlace() {
  const [path, query] = location.hash.slice(2).split("?");
  const [page, ...rest] = path.split("/").map(decodeURIComponent);
  return { page: pages[page] ? page : "pipelines", rest, query: new URLSearchParams(query || "") };
}

function usePlace() {
  const [place, setPlace] = useState(readPlace);
  useEffect(() => {
    const update = () => setPlace(readPlace());
    window.addEventListener("hashchange", update);
    return () => window.removeEventListener("hashchange", update);
  }, []);
  return place;
}

function useTheme() {
  const [theme, setTheme] = useState(localStorage.getItem("perigee.theme") || "");
  useEffect(() => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    localStorage.setItem("perigee.theme", theme);
    window.dispatchEvent(new Event("theme"));
  }, [theme]);
  const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  return [dark, () => setTheme(dark ? "light" : "dark")];
}

// Page shows a page, whose code it may have to load first.
function Page({ place, session }) {
  const [loaded, setLoaded] = useState({});
  const [error, setError] = useState(null);
  const page = pages[place.page];
  const Show = page.show || loaded[place.page];
  useEffect(() => {
    document.title = `${page.title} · Perigee`;
    if (!Show) page.load().then((show) => setLoaded((all) => ({ ...all, [place.page]: show })), setError);
  }, [place.page]);
  if (error) return html`<${Fail} error=${error} />`;
  return Show ? html`<${Show} place=${place} session=${session} />` : html`<div class="loading">Loading</div>`;
}

function Login({ onDone, failed }) {
  const [text, setText] = useState("");
  const submit = (event) => {
    event.preventDefault();
    setToken(text.trim());
    onDone();
  };
  return html`<main class="login"><form class="panel" onSubmit=${submit}>
    <img src="icon.svg" alt="" width="40" height="40" />
    <h1>Perigee</h1>
    <p>This engine asks for the token of its console: <code>console.token</code> in its configuration.</p>
    <label class="field"><span>Token</span><input type="password" autocomplete="current-password" autofocus value=${text} onInput=${(e) => setText(e.target.value)} /></label>
    ${failed && html`<div class="fail" role="alert">The engine does not accept this token.</div>`}
    <button class="primary" type="submit">Open the console</button>
  </form></main>`;
}

function App() {
  const place = usePlace();
  const [dark, toggleTheme] = useTheme();
  const session = useTask();
  const [tries, setTries] = useState(0);
  const load = () => session.run((signal) => call("session", {}, { signal }));
  useEffect(() => {
    load();
  }, []);
  useEffect(() => {
    const main = document.getElementById("main");
    main?.scrollTo(0, 0);
  }, [place.page]);
  if (session.error?.status === 401) {
    return html`<${Login} failed=${tries > 0} onDone=${() => (setTries(tries + 1), load())} />`;
  }
  if (!session.value) {
    return html`<main class="login">${session.error ? html`<div class="panel pad"><${Fail} error=${session.error} /><button onClick=${load}>Try again</button></div>` : html`<div class="loading">Loading</div>`}</main>`;
  }
  return html`<div class="shell">
    <a class="skip" href="#main" onClick=${(e) => (e.preventDefault(), document.getElementById("main").focus())}>Skip to the content</a>
    <nav class="side" aria-label="Pages">
      <a class="brand" href="#/pipelines"><img src="icon.svg" alt="" width="26" height="26" /><span>Perigee</span></a>
      <ul>${Object.entries(pages).map(([name, page]) => html`<li key=${name}>
        <a href=${`#/${name}`} aria-current=${place.page === name ? "page" : null}><${Icon} name=${name} /><span>${page.title}</span></a>
      </li>`)}</ul>
      <div class="foot">
        <button class="quiet" onClick=${toggleTheme}><${Icon} name=${dark ? "sun" : "moon"} /><span>${dark ? "Light" : "Dark"}</span></button>
        <div class="about"><span title="Name of this worker">${session.value.worker}</span><span>${session.value.version}</span></div>
      </div>
    </nav>
    <main id="main" tabindex="-1"><${Page} place=${place} session=${session.value} /></main>
  </div>`;
}

render(html`<${App} />`, document.getElementById("app"));
