// The parts of CodeMirror that the console uses, in one module.
export { EditorState, Compartment, StateEffect, StateField, RangeSetBuilder } from "@codemirror/state";
export {
  EditorView, Decoration, keymap, lineNumbers, highlightActiveLine, highlightActiveLineGutter, highlightSpecialChars,
  drawSelection, placeholder,
} from "@codemirror/view";
export { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
export {
  syntaxHighlighting, HighlightStyle, StreamLanguage, bracketMatching, indentOnInput, indentUnit,
} from "@codemirror/language";
export { autocompletion, completionKeymap, closeBrackets, closeBracketsKeymap, startCompletion } from "@codemirror/autocomplete";
export { sql, PostgreSQL, SQLDialect } from "@codemirror/lang-sql";
export { json } from "@codemirror/lang-json";
export { lua } from "@codemirror/legacy-modes/mode/lua";
export { tags } from "@lezer/highlight";
