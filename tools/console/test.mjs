// Drives every page of a running engine's console in Chromium, and prints console_checks_failed.
//
//   node tools/console/test.mjs PACKAGES ENGINE TOKEN [SCREENSHOTS]
//
// PACKAGES is where build.sh has installed its packages, ENGINE the address of an engine with the
// pipelines of console/browser_test.go, SCREENSHOTS a folder for pictures of the pages.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";

const [packages, engine, token, shots] = process.argv.slice(2);
const require = createRequire(join(resolve(packages), "package.json"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

let checks = 0, failed = 0;

async function check(name, holds) {
  checks++;
  let why = "";
  try {
    if (await holds()) return;
  } catch (error) {
    why = `: ${String(error.message).split("\n").slice(0, 6).join(" ")}`;
  }
  failed++;
  console.log(`FAIL ${name}${why}`);
}

// A step that fails outside of a check ends the run as a failure.
process.on("unhandledRejection", (error) => {
  console.log(`FAIL ${error.message}\nconsole_checks_failed ${failed + 1}`);
  process.exit(1);
});

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ["--no-sandbox"] });
const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, acceptDownloads: true });
const page = await context.newPage();
page.setDefaultTimeout(20000);
const complaints = [], elsewhere = [];
page.on("pageerror", (error) => complaints.push(`error: ${error.message}`));
page.on("console", (m) => m.type() === "error" && !/40[13]|422|400|500|Content Security Policy/.test(m.text()) && complaints.push(m.text()));
page.on("request", (r) => !r.url().startsWith(engine) && !r.url().startsWith("blob:") && elsewhere.push(r.url()));

const open = (place) => page.evaluate((hash) => {
  location.hash = hash;
}, place);
const seen = async (locator) => (await locator.first().waitFor(), true);
const button = (name, exact = true) => page.getByRole("button", { name, exact });

// accessible runs axe on the page. It is evaluated by the debugger, which the policy does not bind.
// Colors that still change, after a click or a change of theme, have the contrast of neither end.
async function accessible(name) {
  await check(`${name}: axe finds nothing serious`, async () => {
    await page.evaluate(axe);
    await page.evaluate(() => Promise.allSettled(document.getAnimations().map((a) => a.finished)));
    const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
    const serious = violations.filter((v) => ["serious", "critical"].includes(v.impact));
    for (const v of serious) console.log(`  ${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => `${n.target.join(" ")} ${n.any[0]?.message || ""}`).join("; ")}`);
    return serious.length === 0;
  });
}

async function shoot(name) {
  if (!shots) return;
  await page.evaluate(() => document.querySelector(".about").replaceChildren(...["ada-1", "0.1.0"].map((text) => Object.assign(document.createElement("span"), { textContent: text })))); // whatever machine this is
  await page.screenshot({ path: join(shots, `console-${name}.png`), caret: "initial" }); // to hide it needs an inline style
}

// ---- token ----

await page.goto(`${engine}/console/`);
await check("the console asks for the token", () => seen(page.getByLabel("Token")));
await accessible("token");
await page.getByLabel("Token").fill("wrong");
await button("Open the console").click();
await check("a wrong token is refused", () => seen(page.getByText("does not accept this token")));
await page.getByLabel("Token").fill(token);
await page.keyboard.press("Enter");
await check("the token opens the console", () => seen(page.getByRole("heading", { name: "Pipelines" })));

// ---- pipelines ----

await check("both pipelines are shown", async () => (await seen(page.getByRole("link", { name: "mails", exact: true }))) && seen(page.getByRole("link", { name: "visits", exact: true })));
await page.waitForTimeout(4000);
await accessible("pipelines");
await shoot("overview");
await page.getByRole("link", { name: "mails", exact: true }).first().click();
await check("a pipeline has plots", async () => (await seen(page.locator("canvas"))) && (await page.locator("canvas").count()) === 3);
await check("the rates move", async () => {
  await page.waitForFunction(() => /in [1-9]/.test(document.querySelector('[aria-label^="events per second"]')?.getAttribute("aria-label") || ""));
  return true;
});
await check("positions are shown", () => seen(page.getByRole("region", { name: "Positions" }).locator("tbody tr")));
await button("Measure").click();
await check("the script is measured by line", () => seen(page.getByText("per event,")));
await check("what is not compiled is named", () => seen(page.locator(".listing .abort")));
await page.waitForTimeout(8000);
await accessible("pipeline");
await page.locator("h1").first().scrollIntoViewIfNeeded();
await shoot("pipeline");
await page.locator(".listing").scrollIntoViewIfNeeded();
await shoot("measure");
await button("Pause").click();
await page.getByLabel("Reason").fill("tested");
await page.getByRole("dialog").getByRole("button", { name: "Pause", exact: true }).click();
await check("pause works", async () => (await seen(button("Resume"))) && seen(page.getByText("tested", { exact: false })));
await button("Resume").click();
await check("resume works", () => seen(button("Pause")));

// ---- dead letters ----

await open("#/letters/mails");
await check("dead letters are shown", () => seen(page.locator(".letters li")));
await check("markup in an event is text", async () => (await seen(page.getByText("<img src=x", { exact: false }))) && (await page.title()) !== "pwned" && (await page.locator("main img, main svg[onload]").count()) === 0);
await page.locator(".letters button").nth(1).click();
await check("the lines of the script are shown", () => seen(page.locator(".source-lines .at", { hasText: "no consent" })));
await button("Try").click();
await check("a trial fails as the event did", () => seen(page.locator(".outcome", { hasText: "no consent" })));
await accessible("dead letters");
await shoot("letters");
await button("Change the script too").click();
await page.getByRole("textbox", { name: "Script" }).fill("function main(event) event.tried = true return event end");
await button("Try").click();
await check("a changed script lets the event pass", () => seen(page.locator(".outcome", { hasText: "console" }).or(page.locator(".outcome", { hasText: "mysql" }))));
await button("Retry this event").click();
await check("one is retried", () => seen(page.getByText("1 queued")));
await page.getByLabel("Text in the error or the event").fill("no such text anywhere");
await check("the filter finds nothing", () => seen(page.getByText("No dead letters")));
await page.getByLabel("Text in the error or the event").fill("no consent");
await check("the filter finds events", () => seen(page.locator(".letters li")));
await button(/^Retry all/, false).click();
await page.getByRole("dialog").getByRole("button", { name: "Retry all" }).click();
await check("all are retried", () => seen(page.getByText(/[1-9][0-9,]* queued/)));

// ---- SQL ----

await open("#/sql");
const editor = page.getByRole("textbox", { name: "SQL" });
await check("the tables are shown", () => seen(page.locator(".tables b", { hasText: "visits" })));
await editor.click();
await page.keyboard.press("Control+a");
await page.keyboard.type("SELECT vis");
await check("a table is completed", () => seen(page.locator(".cm-tooltip-autocomplete li", { hasText: "visits" })));
await page.keyboard.press("Escape");
await editor.fill("SELECT time_bucket(INTERVAL 1 minute, time) AS minute, count(*) AS events, count(DISTINCT email) AS people\nFROM visits GROUP BY minute ORDER BY minute");
await page.keyboard.press("Control+Enter");
await check("a query answers", () => seen(page.getByRole("table", { name: "Result" }).getByRole("row").nth(1)));
await accessible("SQL");
await button("Plot").click();
await check("a result is plotted over time", () => seen(page.locator(".plot canvas")));
await page.waitForTimeout(500);
await shoot("sql");
await button("Rows").click();
await check("a result is exported", async () => {
  const [file] = await Promise.all([page.waitForEvent("download"), button("csv").click()]);
  return file.suggestedFilename() === "query.csv" && readFileSync(await file.path(), "utf8").startsWith("minute,events,people");
});
await editor.fill("SELECT event_name, count(*) AS events FROM visits GROUP BY ALL ORDER BY 2 DESC");
await page.keyboard.press("Control+Enter");
await check("names are shown", () => seen(page.getByRole("cell", { name: "sent" })));
await button("Plot").click();
await check("names are plotted as bars", () => seen(page.getByRole("img", { name: /by event_name/ })));
await editor.fill("SELECT count(*) FROM range(100000000000) a");
await page.keyboard.press("Control+Enter");
await check("a query is cancelled", async () => {
  await button("Cancel").click();
  return seen(button("Run"));
});
await editor.fill("SELECT\n nothing FROM visits");
await page.keyboard.press("Control+Enter");
await check("a mistake has its line", () => seen(page.getByText("Line 2", { exact: false })));
await button("History").click();
await check("queries are remembered", () => seen(page.locator(".history button", { hasText: "event_name" })));
await page.locator(".tables summary", { hasText: "visits" }).first().click();
await button("Segments").first().click();
await check("segments and retention are shown", () => seen(page.getByRole("dialog").getByText("87600h", { exact: false })));
await button("Close").click();

// ---- playground ----

await open("#/playground/mails");
const script = page.getByRole("textbox", { name: "Script" });
await check("the running script is shown", () => seen(page.locator(".cm-line", { hasText: "domains.of" })));
await page.getByRole("textbox", { name: "Events" }).fill('{"id": 1, "email": "ada@example.com", "campaign": "spring sale"}\n{"id": 97, "email": "bob@example.com", "campaign": "welcome"}');
await check("a trial runs as one types", () => seen(page.locator(".outcome", { hasText: "example.com" })));
await check("what fails is shown", () => seen(page.locator(".outcome", { hasText: "no consent" })));
await accessible("playground");
await shoot("playground");
await button("Columns").click();
await check("columns are shown", () => seen(page.getByRole("columnheader", { name: "domain" })));
await button("Save as a test case").click();
await page.getByLabel("Name of the case").fill("refuses who did not agree");
await button("Make the case").click();
await check("a test case is saved", async () => {
  const [file] = await Promise.all([page.waitForEvent("download"), button("Download pipeline_test.yaml").click()]);
  return readFileSync(await file.path(), "utf8").includes("no consent");
});
await page.keyboard.press("Escape");
await script.fill("function main(event)\n  return event +\nend");
await check("a mistake in the script has its line", () => seen(page.getByText(/Line [23]/)));

// ---- nodes ----

await open("#/nodes");
await check("the names of nodes are shown", () => seen(page.getByRole("link", { name: "^visits" })));
await page.getByRole("link", { name: "^visits" }).click();
await check("children are shown", () => seen(page.locator(".tree tbody tr", { hasText: "@" })));
await accessible("nodes");
await page.getByRole("searchbox").fill("example.com");
await button("Search").click();
await check("nodes are found", () => seen(page.getByText("nodes with", { exact: false })));
await shoot("nodes");

// ---- dark, small, keyboard ----

await button("Dark").click();
await check("dark is dark", () => page.waitForFunction(() => getComputedStyle(document.body).backgroundColor === "rgb(14, 16, 20)", null, { timeout: 2000 })); // from the next frame on
await accessible("nodes, dark");
await open("#/pipelines/visits");
await page.waitForTimeout(6000);
await accessible("pipeline, dark");
await shoot("dark");
await open("#/sql");
await seen(editor);
await accessible("SQL, dark");
await page.setViewportSize({ width: 420, height: 800 });
await check("a narrow page does not scroll sideways", () => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
await page.setViewportSize({ width: 1360, height: 860 });
await open("#/pipelines");
await page.reload();
await seen(page.getByRole("heading", { name: "Pipelines", exact: true }));
await page.keyboard.press("Tab");
await check("the keyboard reaches the content first", () => page.evaluate(() => document.activeElement?.className === "skip"));

// ---- policy: on a page without axe, which adds style sheets that the policy refuses ----

const clean = await context.newPage();
clean.setDefaultTimeout(20000);
clean.on("pageerror", (error) => complaints.push(`error: ${error.message}`));
clean.on("console", (m) => m.type() === "error" && !/Failed to load resource/.test(m.text()) && complaints.push(m.text()));
await clean.goto(`${engine}/console/`);
await clean.getByLabel("Token").fill(token);
await clean.keyboard.press("Enter");
for (const [place, heading] of [["pipelines", "Pipelines"], ["pipelines/mails", "mails running"], ["letters", "Dead letters"], ["sql", "SQL"], ["playground/mails", "Playground"], ["nodes", "Nodes"]]) {
  await clean.evaluate((hash) => {
    location.hash = hash;
  }, `#/${place}`);
  await check(`${place} opens`, () => seen(clean.getByRole("heading", { name: heading, exact: true })));
  await clean.waitForTimeout(1500);
}

await check("no page asked another host", () => (elsewhere.length && console.log(`  ${elsewhere[0]}`), elsewhere.length === 0));
await check("no page broke the policy or failed", () => (complaints.length && console.log(`  ${complaints.slice(0, 5).join("\n  ")}`), complaints.length === 0));
await browser.close();
console.log(`console_checks ${checks}`);
console.log(`console_checks_failed ${failed}`);
process.exit(failed ? 1 : 0);
