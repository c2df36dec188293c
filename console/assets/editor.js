// An editor of scripts, SQL and documents. It is in a shadow tree, where its styles need no inline
// style sheet.

import { html, useEffect, useRef } from "./vendor/preact.js";
import * as cm from "./vendor/codemirror.js";

const { EditorView, EditorState, Compartment, StateEffect, StateField, Decoration, tags } = cm;

const theme = EditorView.theme({
  "&": { height: "100%", fontSize: "13px", backgroundColor: "transparent", color: "var(--text)" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.55" },
  ".cm-content": { caretColor: "var(--accent)" },
  ".cm-cursor": { borderLeftColor: "var(--accent)" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--muted)", border: "none" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "var(--active)" },
  ".cm-selectionBackground, &.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground": { backgroundColor: "var(--selection)" },
  ".cm-matchingBracket, &.cm-focused .cm-matchingBracket": { backgroundColor: "var(--selection)", outline: "none" },
  ".cm-tooltip": { backgroundColor: "var(--panel)", border: "1px solid var(--line)", borderRadius: "6px", color: "var(--text)", overflow: "hidden" },
  ".cm-tooltip-autocomplete > ul": { fontFamily: "var(--mono)", fontSize: "12px", maxHeight: "16em" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionDetail": { color: "var(--muted)", fontStyle: "normal", marginLeft: "1em" },
  "li[aria-selected] .cm-completionDetail": { color: "inherit" },
  ".cm-placeholder": { color: "var(--muted)" },
  ".cm-faulty": { backgroundColor: "var(--bad-soft)" },
});

const colours = cm.syntaxHighlighting(cm.HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: "var(--code-keyword)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--code-number)" },
  { tag: [tags.comment], color: "var(--muted)", fontStyle: "italic" },
  { tag: [tags.typeName, tags.standard(tags.name), tags.function(tags.variableName)], color: "var(--code-type)" },
  { tag: [tags.propertyName], color: "var(--code-name)" },
]));

const languages = {
  lua: () => [cm.StreamLanguage.define(cm.lua), cm.indentUnit.of("  ")],
  json: () => [cm.json()],
  sql: () => [cm.sql({ dialect: cm.PostgreSQL, upperCaseKeywords: true })],
  text: () => [],
};

// The line of a fault.
const setFault = StateEffect.define();
const fault = StateField.define({
  create: () => Decoration.none,
  update(found, change) {
    for (const effect of change.effects) {
      if (!effect.is(setFault)) continue;
      const line = effect.value;
      if (!line || line > change.state.doc.lines) return Decoration.none;
      return Decoration.set([Decoration.line({ class: "cm-faulty" }).range(change.state.doc.line(line).from)]);
    }
    return found.map(change.changes);
  },
  provide: (field) => EditorView.decorations.from(field),
});

// Editor edits value. label names it; complete is a source of completions; onRun is called for
// Ctrl-Enter; faultLine is marked.
export function Editor({ value, onChange, language = "text", label, hint, complete, onRun, readOnly, faultLine, height }) {
  const box = useRef(null), view = useRef(null);
  // Texts that onChange has got. The page may show one of them again after the next one was typed: that
  // is not a change of the page's.
  const typed = useRef(new Set());
  const now = useRef({});
  now.current = { onChange, onRun, complete };
  useEffect(() => {
    const root = box.current.shadowRoot || box.current.attachShadow({ mode: "open" });
    const editable = new Compartment();
    view.current = new EditorView({
      root, parent: root,
      state: EditorState.create({
        doc: value,
        extensions: [
          cm.lineNumbers(), cm.highlightSpecialChars(), cm.history(), cm.drawSelection(), cm.indentOnInput(), cm.bracketMatching(), cm.closeBrackets(),
          cm.highlightActiveLine(), cm.highlightActiveLineGutter(), colours, theme, fault, ...languages[language](),
          cm.autocompletion({ override: [(context) => now.current.complete?.(context) ?? null], icons: false }),
          cm.keymap.of([
            { key: "Mod-Enter", run: () => (now.current.onRun?.(), true) },
            ...cm.closeBracketsKeymap, ...cm.defaultKeymap, ...cm.historyKeymap, ...cm.completionKeymap,
          ]),
          EditorView.updateListener.of((update) => {
            if (!update.docChanged) return;
            const text = update.state.doc.toString();
            typed.current.add(text);
            now.current.onChange?.(text);
          }),
          EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false", tabindex: "0" }),
          editable.of([EditorState.readOnly.of(Boolean(readOnly))]),
          hint ? cm.placeholder(hint) : [],
        ],
      }),
    });
    return () => view.current.destroy();
  }, [language]);
  useEffect(() => {
    const own = view.current.state.doc.toString();
    if (own === value) typed.current.clear();
    else if (!typed.current.has(value)) {
      view.current.dispatch({ changes: { from: 0, to: own.length, insert: value } });
      typed.current.clear();
    }
  }, [value]);
  useEffect(() => {
    view.current.dispatch({ effects: setFault.of(faultLine || 0) });
  }, [faultLine]);
  return html`<div class="editor" style=${height ? { height } : null} ref=${box}></div>`;
}
