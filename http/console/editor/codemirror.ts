import { closeCompletion } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap, indentLess, indentMore } from '@codemirror/commands';
import { bracketMatching, indentUnit } from '@codemirror/language';
import { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search';
import { Compartment, EditorState, type Extension, Prec } from '@codemirror/state';
import {
  type Command,
  drawSelection,
  dropCursor,
  EditorView,
  highlightActiveLine,
  highlightActiveLineGutter,
  highlightSpecialChars,
  keymap,
  lineNumbers,
  placeholder,
} from '@codemirror/view';
import { completion } from './completion/codemirror-completion.ts';
import { textOf } from './document-text.ts';
import type { EditorHandle } from './editor-handle.ts';
import { errorMark, showError } from './error-mark.ts';
import type { EditorError } from './error-range.ts';
import { highlighting } from './highlight.ts';
import { THEME } from './theme.ts';

export interface EditorOptions {
  readonly label: string;
  /** How the keyboard leaves the editor. */
  readonly help: string;
  readonly text: string;
  readonly placeholder: string;
  readonly onChange: (text: string) => void;
  readonly onRun: () => void;
  readonly onRunAll: () => void;
  /** Tab has indented, after {@link onChange}. */
  readonly onTab: () => void;
}

export interface MountedEditor {
  readonly handle: EditorHandle;
  /** Makes the text this one, unless it is. */
  replace(text: string): void;
  setError(error: EditorError | undefined): void;
  setReadOnly(isReadOnly: boolean): void;
  setLabel(label: string): void;
  destroy(): void;
}

/**
 * Puts CodeMirror into a shadow root of `host`. There it has style sheets of its own by script, which the page's policy allows; in
 * the document it would need `style` elements, which it does not.
 */
export function mountEditor(host: HTMLElement, options: EditorOptions): MountedEditor {
  const root = host.shadowRoot ?? host.attachShadow({ mode: 'open' });
  const readOnly = new Compartment();
  const attributes = new Compartment();
  const label = (text: string) => EditorView.contentAttributes.of({ 'aria-label': text, 'aria-description': options.help });
  const view = new EditorView({
    root,
    parent: root,
    state: EditorState.create({
      doc: options.text,
      extensions: [
        // Offsets stay those of the text: a carriage return is a character.
        EditorState.lineSeparator.of('\n'),
        EditorView.clipboardInputFilter.of((pasted) => pasted.replace(/\r\n?/g, '\n')),
        readOnly.of([]),
        attributes.of(label(options.label)),
        EditorView.updateListener.of(({ docChanged, state }) => docChanged && options.onChange(textOf(state))),
        keys(options),
        FEATURES,
        placeholder(options.placeholder),
      ],
    }),
  });
  return {
    handle: handleOf(view),
    replace: (text) => replaceText(view, text),
    setError: (error) => view.dispatch(showError(view.state, error)),
    setReadOnly: (isReadOnly) =>
      view.dispatch({ effects: readOnly.reconfigure([EditorState.readOnly.of(isReadOnly), EditorView.editable.of(!isReadOnly)]) }),
    setLabel: (text) => view.dispatch({ effects: attributes.reconfigure(label(text)) }),
    destroy: () => view.destroy(),
  };
}

const FEATURES: Extension = [
  lineNumbers(),
  highlightSpecialChars(),
  history(),
  drawSelection(),
  dropCursor(),
  indentUnit.of('  '),
  bracketMatching(),
  highlightActiveLine(),
  highlightActiveLineGutter(),
  highlightSelectionMatches(),
  search({ top: true }),
  completion,
  highlighting,
  errorMark,
  EditorView.lineWrapping,
  THEME,
];

function keys({ onRun, onRunAll, onTab }: EditorOptions): Extension {
  const running =
    (run: () => void): Command =>
    (view) => {
      closeCompletion(view);
      run();
      return true;
    };
  const indent: Command = (view) => {
    const isDone = indentMore(view);
    if (isDone) onTab();
    return isDone;
  };
  return [
    Prec.highest(
      keymap.of(
        ['Mod', 'Ctrl'].flatMap((modifier) => [
          { key: `${modifier}-Enter`, run: running(onRun) },
          { key: `${modifier}-Shift-Enter`, run: running(onRunAll) },
        ]),
      ),
    ),
    keymap.of([
      ...searchKeymap,
      ...historyKeymap,
      ...defaultKeymap,
      { key: 'Escape', run: releaseTab },
      { key: 'Tab', run: indent, shift: indentLess },
    ]),
    EditorView.domEventObservers({ focus: (_, view) => view.setTabFocusMode(false) }),
  ];
}

/** After Escape, Tab leaves the editor, until another key is pressed. CodeMirror by itself allows two seconds for that. */
const releaseTab: Command = (view) => {
  queueMicrotask(() => view.setTabFocusMode(Number.POSITIVE_INFINITY));
  return false;
};

function handleOf(view: EditorView): EditorHandle {
  return {
    selection: () => {
      const { from, to } = view.state.selection.main;
      return { from, to };
    },
    select: (from, to) => {
      const end = view.state.doc.length;
      const selection = { anchor: Math.min(from, end), head: Math.min(to, end) };
      view.dispatch({ selection, scrollIntoView: true });
    },
    insert: (text) => view.dispatch(view.state.replaceSelection(text), { scrollIntoView: true }),
    focus: () => view.focus(),
  };
}

/** Changes only what differs, so that the cursor stays where it is. */
function replaceText(view: EditorView, text: string): void {
  const former = textOf(view.state);
  if (former === text) return;
  let from = 0;
  while (from < former.length && from < text.length && former[from] === text[from]) from += 1;
  let end = 0;
  const shortest = Math.min(former.length, text.length) - from;
  while (end < shortest && former[former.length - 1 - end] === text[text.length - 1 - end]) end += 1;
  view.dispatch({ changes: { from, to: former.length - end, insert: text.slice(from, text.length - end) } });
}
