// Plots that follow the colours of the page.

import { html, useEffect, useRef } from "./vendor/preact.js";
import { uPlot } from "./vendor/uplot.js";
import { short, duration } from "./ui.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const formats = { count: short, duration };

const two = (n) => String(n).padStart(2, "0");

function clock(seconds, span) {
  const t = new Date(seconds * 1000);
  const time = `${two(t.getUTCHours())}:${two(t.getUTCMinutes())}`;
  if (span > 2 * 86400) return `${t.getUTCFullYear()}-${two(t.getUTCMonth() + 1)}-${two(t.getUTCDate())}`;
  return span > 600 ? time : `${time}:${two(t.getUTCSeconds())}`;
}

// Plot draws series over time, or bars. data is [x, y, …]; series have a label and a colour of the
// style sheet; labels are the names of bars.
export function Plot({ data, series, height = 180, format = "count", bars, labels, title, live }) {
  const box = useRef(null), plot = useRef(null), latest = useRef(data);
  latest.current = data;
  const shape = JSON.stringify([series, height, format, bars, labels, live]);
  useEffect(() => {
    const make = () => {
      plot.current?.destroy();
      const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: `11px ${colour("--sans")}` };
      const value = formats[format];
      const x = labels
        ? { ...axis, grid: { show: false }, splits: () => labels.map((_, i) => i), values: (_, all) => all.map((i) => (labels[i] ?? "").slice(0, 14)), rotate: labels.length > 8 ? -45 : 0, size: labels.length > 8 ? 74 : 32 }
        : { ...axis, grid: { show: false }, size: 30, space: 84, values: (u, all) => all.map((s) => clock(s, u.scales.x.max - u.scales.x.min)) };
      plot.current = new uPlot({
        width: box.current.clientWidth || 400, height, pxAlign: true, padding: [10, 8, 0, 0],
        legend: { show: false }, cursor: { drag: { x: !live, y: false }, points: { size: 6 } },
        scales: { x: labels ? { time: false, range: [-0.6, labels.length - 0.4] } : { time: true }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.08 : 1] } },
        axes: [x, { ...axis, size: 58, values: (_, all) => all.map((v) => (v === 0 ? "0" : value(v))) }],
        series: [{}, ...series.map((s) => ({
          label: s.label, stroke: colour(s.colour), width: 1.6, spanGaps: false, points: { show: false },
          fill: bars ? colour(s.colour) + "cc" : s.fill ? colour(s.colour) + "1c" : undefined,
          paths: bars ? uPlot.paths.bars({ size: [0.7, 60] }) : undefined,
        }))],
      }, latest.current, box.current);
    };
    make();
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: box.current.clientWidth || 400, height }));
    observer.observe(box.current);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", make);
    window.addEventListener("theme", make);
    return () => {
      observer.disconnect();
      dark.removeEventListener("change", make);
      window.removeEventListener("theme", make);
      plot.current?.destroy();
      plot.current = null;
    };
  }, [shape]);
  useEffect(() => {
    plot.current?.setData(data);
  }, [data]);
  const last = (i) => data[i + 1]?.findLast?.((v) => v != null);
  const summary = series.map((s, i) => `${s.label} ${last(i) == null ? "none" : formats[format](last(i))}`).join(", ");
  return html`<figure class="plot">
    <figcaption><span class="title">${title}</span>${series.map((s, i) => html`<span class="key ${s.colour.slice(2)}"><i aria-hidden="true"></i>${s.label}
      ${live && html`<b>${last(i) == null ? "–" : formats[format](last(i))}</b>`}</span>`)}</figcaption>
    <div class="canvas" ref=${box} role="img" aria-label=${`${title}: ${summary}`}></div>
  </figure>`;
}
