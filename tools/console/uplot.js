// The plots.
export { default as uPlot } from "uplot";
