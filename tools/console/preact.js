// Preact with hooks, and htm in place of JSX.
import { h, render, Component, Fragment, createRef } from "preact";
import htm from "htm";
export { useState, useEffect, useLayoutEffect, useMemo, useRef, useCallback, useReducer } from "preact/hooks";
export const html = htm.bind(h);
export { h, render, Component, Fragment, createRef };
