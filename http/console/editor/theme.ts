import { HighlightStyle } from '@codemirror/language';
import { EditorView } from '@codemirror/view';
import { tags } from '@lezer/highlight';

/** Colors come from style/tokens.css: custom properties reach into the shadow root. */
export const HIGHLIGHT = HighlightStyle.define([
  { tag: [tags.keyword, tags.bool, tags.null], color: 'var(--keyword)' },
  { tag: [tags.typeName, tags.standard(tags.name)], color: 'var(--name)' },
  { tag: tags.string, color: 'var(--string)' },
  { tag: tags.special(tags.string), color: 'var(--text)' },
  { tag: tags.number, color: 'var(--number)' },
  { tag: tags.comment, color: 'var(--comment)' },
]);

const FOCUS = { outline: '2px solid var(--accent)', outlineOffset: '1px' };
const CHOSEN = { background: 'var(--accent-soft)', color: 'var(--text)' };

export const THEME = EditorView.theme({
  '&': { flex: '1 1 auto', minHeight: '0', color: 'var(--text)', backgroundColor: 'var(--back)', fontSize: 'var(--size-mono)' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.55', overflow: 'auto', scrollbarWidth: 'thin' },
  '.cm-content': { padding: '7px 0', caretColor: 'var(--text)' },
  '.cm-line': { padding: '0 10px 0 6px' },
  '.cm-cursor, .cm-dropCursor': { borderLeftColor: 'var(--text)' },
  '.cm-placeholder': { color: 'var(--muted)' },
  '.cm-gutters': { backgroundColor: 'var(--back)', color: 'var(--muted)', border: '0' },
  '.cm-lineNumbers .cm-gutterElement': { padding: '0 4px 0 10px', minWidth: '28px' },
  '.cm-activeLine': { backgroundColor: 'transparent' },
  '.cm-activeLineGutter': { backgroundColor: 'transparent' },
  '&.cm-focused .cm-activeLine': { backgroundColor: 'color-mix(in oklab, var(--soft), transparent 35%)' },
  '&.cm-focused .cm-activeLineGutter': { backgroundColor: 'var(--soft)', color: 'var(--text)' },
  '.cm-selectionLayer .cm-selectionBackground': { background: 'var(--hover)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground': {
    background: 'color-mix(in oklab, var(--accent), transparent 72%)',
  },
  '.cm-selectionMatch': { backgroundColor: 'color-mix(in oklab, var(--accent), transparent 86%)' },
  '&.cm-focused .cm-matchingBracket': { backgroundColor: 'var(--accent-soft)', outline: '1px solid var(--edge)' },
  '&.cm-focused .cm-nonmatchingBracket': { backgroundColor: 'var(--bad-soft)', color: 'var(--bad)' },
  '.cm-searchMatch': { backgroundColor: 'var(--warning-soft)', outline: '1px solid var(--warning)' },
  '.cm-searchMatch.cm-searchMatch-selected': { backgroundColor: 'color-mix(in oklab, var(--warning), transparent 60%)' },
  '.cm-specialChar': { color: 'var(--bad)' },

  '.cm-panels': { backgroundColor: 'var(--side)', color: 'var(--text)', fontFamily: 'var(--font)', fontSize: 'var(--size-small)' },
  '.cm-panels.cm-panels-top': { borderBottom: '1px solid var(--line)' },
  '.cm-panels.cm-panels-bottom': { borderTop: '1px solid var(--line)' },
  '.cm-panel.cm-search': { padding: '6px 28px 6px 8px' },
  '.cm-panel.cm-search label': { fontSize: 'inherit', display: 'inline-flex', alignItems: 'center', gap: '4px' },
  '.cm-panel.cm-search input, .cm-panel.cm-search button, .cm-panel.cm-search label': { verticalAlign: 'middle' },
  '.cm-panel.cm-search [name=close]': { color: 'var(--muted)', fontSize: '16px', width: '24px', height: '24px', top: '4px', right: '2px' },
  '.cm-textfield': {
    font: 'inherit',
    color: 'var(--text)',
    backgroundColor: 'var(--back)',
    border: '1px solid var(--edge)',
    borderRadius: '4px',
    padding: '2px 6px',
    minHeight: '24px',
  },
  '.cm-button': {
    font: 'inherit',
    color: 'var(--text)',
    backgroundColor: 'var(--raised)',
    backgroundImage: 'none',
    border: '1px solid var(--edge)',
    borderRadius: '4px',
    padding: '2px 8px',
    minHeight: '24px',
    '&:active': { backgroundImage: 'none' },
    '&:hover': { backgroundColor: 'var(--hover)' },
  },
  '.cm-textfield:focus-visible, .cm-button:focus-visible, .cm-panel button:focus-visible, .cm-panel input:focus-visible': FOCUS,

  '.cm-tooltip': {
    color: 'var(--text)',
    backgroundColor: 'var(--raised)',
    border: '1px solid var(--line)',
    borderRadius: 'var(--radius)',
    boxShadow: 'var(--shadow)',
  },
  '.cm-tooltip.cm-tooltip-autocomplete > ul': { fontFamily: 'var(--mono)', maxHeight: '15em', padding: '3px', scrollbarWidth: 'thin' },
  '.cm-tooltip.cm-tooltip-autocomplete > ul > li': {
    padding: '2px 8px',
    borderRadius: '4px',
    lineHeight: '1.5',
    display: 'flex',
    gap: '12px',
  },
  '.cm-tooltip.cm-tooltip-autocomplete > ul > li[aria-selected]': CHOSEN,
  '.cm-tooltip-autocomplete-disabled.cm-tooltip-autocomplete > ul > li[aria-selected]': CHOSEN,
  '.cm-completionLabel': { overflow: 'hidden', textOverflow: 'ellipsis' },
  '.cm-completionMatchedText': { textDecoration: 'none', color: 'var(--accent)', fontWeight: '600' },
  '.cm-completionDetail': {
    marginLeft: 'auto',
    fontStyle: 'normal',
    fontFamily: 'var(--font)',
    color: 'var(--muted)',
    overflow: 'hidden',
    textOverflow: 'ellipsis',
  },
});
