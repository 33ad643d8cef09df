import {
  acceptCompletion,
  autocompletion,
  type Completion,
  type CompletionContext,
  type CompletionResult,
  closeCompletion,
  completionStatus,
  insertCompletionText,
  pickedCompletion,
  selectedCompletion,
  startCompletion,
} from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap, indentLess, indentMore } from '@codemirror/commands';
import { bracketMatching, indentUnit } from '@codemirror/language';
import { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search';
import {
  Compartment,
  EditorSelection,
  EditorState,
  type Extension,
  Prec,
  type Range,
  RangeSet,
  StateEffect,
  StateField,
  type Transaction,
  type TransactionSpec,
} from '@codemirror/state';
import {
  type Command,
  Decoration,
  type DecorationSet,
  drawSelection,
  dropCursor,
  EditorView,
  GutterMarker,
  gutterLineClass,
  highlightActiveLine,
  highlightActiveLineGutter,
  highlightSpecialChars,
  hoverTooltip,
  keymap,
  lineNumbers,
  placeholder,
  showTooltip,
  type Tooltip,
  ViewPlugin,
  type ViewUpdate,
} from '@codemirror/view';
import { isString, Lexer, Token, type TokenKind } from '../../../src/syntax/scanner.ts';
import { refreshSchemaSoon, schema } from '../api/load-schema.ts';
import { cursorIn, type Option, OTHER_KEYWORDS, optionsAt, TYPES, USUAL_KEYWORDS } from './completion.ts';
import { type EditorHandle, textOf } from './editor-handle.ts';
import type { EditorError } from './error-range.ts';

const markOf = (name: string) => Decoration.mark({ class: `cm-${name}` });
const MARKS = {
  keyword: markOf('keyword'),
  type: markOf('type'),
  string: markOf('string'),
  number: markOf('number'),
  comment: markOf('comment'),
};

const KEYWORDS = new Set([...USUAL_KEYWORDS, ...OTHER_KEYWORDS]);
/** Without those that are names of columns more often. */
const TYPE_NAMES = new Set(TYPES.filter((type) => !['box', 'circle', 'line', 'name', 'path', 'point'].includes(type)));
/** Behind these words, a dollar-quoted string is the body of a function. */
const BEFORE_BODY = new Set(['as', 'do']);

/** Reading may begin at one of these again. */
const CHECKPOINT_CHARACTERS = 4_000;

/** Colors what is seen, as `src/syntax/` reads it. */
class Highlighter {
  decorations: DecorationSet;
  /** Ends of tokens, ascending. */
  #checkpoints: number[] = [0];

  constructor(view: EditorView) {
    this.decorations = this.#read(view);
  }

  update({ docChanged, viewportChanged, changes, view }: ViewUpdate): void {
    if (docChanged) {
      let changed = Number.POSITIVE_INFINITY;
      changes.iterChangedRanges((from) => {
        changed = Math.min(changed, from);
      });
      // A token that ends where something was put in may go on.
      this.#checkpoints = this.#checkpoints.filter((at) => at === 0 || at < changed);
    }
    if (docChanged || viewportChanged) this.decorations = this.#read(view);
  }

  #read({ state, viewport }: EditorView): DecorationSet {
    const marks = new Marks(textOf(state), viewport);
    marks.read(this.#checkpoints.findLast((at) => at <= viewport.from) ?? 0, viewport.to, (end) => {
      if (end > (this.#checkpoints.at(-1) ?? 0) + CHECKPOINT_CHARACTERS) this.#checkpoints.push(end);
    });
    return RangeSet.of(marks.found);
  }
}

class Marks {
  readonly found: Range<Decoration>[] = [];
  readonly #text: string;
  readonly #seenFrom: number;

  constructor(text: string, seen: { readonly from: number }) {
    this.#text = text;
    this.#seenFrom = seen.from;
  }

  /** Reads tokens up to the one that begins at `to` or after it. */
  read(from: number, to: number, onToken: (end: number) => void): void {
    const lexer = new Lexer(this.#text, { offset: from });
    let before = '';
    for (let end = from; ; end = lexer.end) {
      const kind = lexer.next();
      this.#comments(end, Math.min(lexer.start, to));
      if (kind === Token.End || lexer.start >= to) return;
      before = this.#token(lexer, before);
      onToken(lexer.end);
    }
  }

  /** @returns the token, if it is a word or a mark that the next one depends on */
  #token({ kind, start, end, close, terminated }: Lexer, before: string): string {
    const text = this.#text;
    if (kind === Token.Punctuation) return text.charAt(start);
    if (kind === Token.Word) {
      const word = text.slice(start, end).toLowerCase();
      if (before !== '.') this.#add(KEYWORDS.has(word) ? MARKS.keyword : TYPE_NAMES.has(word) ? MARKS.type : undefined, start, end);
      return word;
    }
    if (kind === Token.DollarString && BEFORE_BODY.has(before)) this.#body(start, close, terminated);
    else this.#add(markOfKind(kind), start, end);
    return '';
  }

  #body(start: number, end: number, isTerminated: boolean): void {
    const tag = this.#text.indexOf('$', start + 1) + 1 - start;
    const bodyEnd = isTerminated ? end - tag : end;
    this.#add(MARKS.string, start, start + tag);
    this.read(start + tag, bodyEnd, () => undefined);
    this.#add(MARKS.string, bodyEnd, end);
  }

  /** What is between two tokens, but for the white space around it. */
  #comments(from: number, to: number): void {
    const between = this.#text.slice(from, to);
    const comment = between.trim();
    const start = from + between.indexOf(comment);
    if (comment !== '') this.#add(MARKS.comment, start, start + comment.length);
  }

  #add(mark: Decoration | undefined, from: number, to: number): void {
    if (mark !== undefined && to > from && to > this.#seenFrom) this.found.push(mark.range(from, to));
  }
}

function markOfKind(kind: TokenKind): Decoration | undefined {
  if (isString(kind)) return MARKS.string;
  return kind === Token.Number || kind === Token.BitString || kind === Token.Parameter ? MARKS.number : undefined;
}

const HIGHLIGHT_STYLE = EditorView.theme({
  '.cm-keyword': { color: 'var(--keyword)' },
  '.cm-type': { color: 'var(--name)' },
  '.cm-string': { color: 'var(--string)' },
  '.cm-number': { color: 'var(--number)' },
  '.cm-comment': { color: 'var(--comment)' },
});

const highlighting: Extension = [
  ViewPlugin.fromClass(Highlighter, { decorations: ({ decorations }) => decorations }),
  EditorState.languageData.of(() => [{ commentTokens: { line: '--', block: { open: '/*', close: '*/' } } }]),
  HIGHLIGHT_STYLE,
];

const setError = StateEffect.define<EditorError | undefined>();

const WORD = Decoration.mark({ class: 'cm-error' });
const LINE = Decoration.line({ class: 'cm-errorLine' });
const LINE_NUMBER = new (class extends GutterMarker {
  override readonly elementClass = 'cm-errorLineNumber';
})();

/** The error that is shown; never empty, and inside the text. */
const shownError = StateField.define<EditorError | undefined>({
  create: () => undefined,
  update: (error, transaction) => next(error, transaction),
  provide: (field) => [
    EditorView.decorations.compute([field], (state) => marks(state)),
    gutterLineClass.compute([field], (state) => {
      const error = state.field(field);
      return error === undefined ? RangeSet.empty : RangeSet.of([LINE_NUMBER.range(state.doc.lineAt(error.from).from)]);
    }),
    EditorView.contentAttributes.compute([field], (state): Record<string, string> => {
      const error = state.field(field);
      return error === undefined ? {} : { 'aria-invalid': 'true' };
    }),
    showTooltip.compute([field, 'selection'], (state) => {
      const error = state.field(field);
      const { head, empty } = state.selection.main;
      return error !== undefined && empty && head >= error.from && head <= error.to ? tooltipOf(error) : null;
    }),
  ],
});

function next(error: EditorError | undefined, { effects, docChanged }: Transaction): EditorError | undefined {
  const set = effects.find((effect) => effect.is(setError));
  if (set !== undefined) return set.value;
  return docChanged ? undefined : error;
}

function marks(state: EditorState): DecorationSet {
  const error = state.field(shownError);
  if (error === undefined) return Decoration.none;
  const line = LINE.range(state.doc.lineAt(error.from).from);
  return error.to > error.from ? Decoration.set([line, WORD.range(error.from, error.to)], true) : Decoration.set([line]);
}

function tooltipOf({ from, to, message }: EditorError): Tooltip {
  return {
    pos: from,
    end: to,
    create: () => {
      const dom = document.createElement('div');
      dom.className = 'cm-errorMessage';
      dom.textContent = message;
      return { dom };
    },
  };
}

const ERROR_STYLE = EditorView.theme({
  '.cm-error': { textDecoration: 'underline wavy var(--bad) 1px', textUnderlineOffset: '3px', backgroundColor: 'var(--bad-soft)' },
  '.cm-errorLine, &.cm-focused .cm-errorLine.cm-activeLine': { backgroundColor: 'color-mix(in oklab, var(--bad-soft), transparent 45%)' },
  '.cm-errorLineNumber, &.cm-focused .cm-errorLineNumber': { color: 'var(--bad)', fontWeight: '700' },
  '.cm-errorMessage': {
    padding: '5px 10px',
    maxWidth: '52ch',
    whiteSpace: 'pre-wrap',
    overflowWrap: 'anywhere',
    fontFamily: 'var(--font)',
  },
});

const errorMark: Extension = [
  shownError,
  hoverTooltip((view, at) => {
    const error = view.state.field(shownError);
    return error !== undefined && at >= error.from && at <= error.to ? tooltipOf(error) : null;
  }),
  ERROR_STYLE,
];

/** Marks the error, scrolls to it, and says it to screen readers; undefined takes the mark away. */
function showError(state: EditorState, error: EditorError | undefined): TransactionSpec {
  if (error === undefined) return { effects: setError.of(undefined) };
  const shown = { ...rangeIn(state, error), message: error.message };
  const { number } = state.doc.lineAt(shown.from);
  return {
    effects: [
      setError.of(shown),
      EditorView.scrollIntoView(shown.from, { y: 'nearest', yMargin: 40 }),
      EditorView.announce.of(`Line ${number}: ${error.message}`),
    ],
  };
}

/** Inside the text; where nothing would be underlined, the character before. */
function rangeIn({ doc }: EditorState, { from, to }: EditorError): { readonly from: number; readonly to: number } {
  const start = Math.max(0, Math.min(from, doc.length));
  const end = Math.min(Math.max(to, start), doc.length);
  return end > start || start === 0 ? { from: start, to: end } : { from: start - 1, to: end };
}

/** A table that was made a moment ago is to be offered. */
const SCHEMA_MAX_AGE_MS = 2_000;
const DELAY_MS = 40;
/** For so long after the load that completion has asked for begins, a schema that arrives shows more. */
const WAITING_MS = 5_000;

interface SqlCompletion extends Completion {
  readonly sql: string;
}

let waitsUntil = Number.NEGATIVE_INFINITY;

function complete(context: CompletionContext): CompletionResult | null {
  const { state, pos, explicit } = context;
  const cursor = cursorIn(textOf(state), pos);
  if (cursor === undefined) return null;
  const isNamed = cursor.typed !== '' || cursor.isQuoted || cursor.path.length > 0;
  if (!explicit && !isNamed) return null;
  // Keywords need no schema.
  if (explicit || cursor.expectsTable || cursor.path.length > 0 || schema.peek() === undefined) {
    waitsUntil = performance.now() + refreshSchemaSoon(SCHEMA_MAX_AGE_MS) + WAITING_MS;
  }
  const typed = cursor.typed.toLowerCase();
  const options = optionsAt(cursor, schema.peek()).map(completionOf);
  if (options.length === 0) return null;
  return {
    from: cursor.from,
    to: cursor.to,
    options,
    // They are the best already, in their order.
    filter: false,
    update: (_current, _from, _to, next) => complete(next),
    getMatch: ({ label }) => matchIn(label, typed),
  };
}

function completionOf(option: Option): SqlCompletion {
  const { label, detail, sql } = option;
  return { label, detail, sql, apply: (view, completion, from, to) => apply(view, completion, option, from, to) };
}

function apply(view: EditorView, completion: Completion, { sql, goesOn }: Option, from: number, to: number): void {
  const mark = goesOn === 'arguments' ? '()' : goesOn === 'dot' ? '.' : '';
  const isThere = view.state.sliceDoc(to, to + 1) === mark.charAt(0);
  const text = isThere ? sql : sql + mark;
  view.dispatch({
    ...insertCompletionText(view.state, text, from, to),
    selection: EditorSelection.cursor(from + sql.length + mark.slice(0, 1).length),
    annotations: pickedCompletion.of(completion),
  });
  if (goesOn === 'dot') startCompletion(view);
}

/** Where the name has what is typed: a label may have a schema or an alias in front of it. */
function matchIn(label: string, typed: string): readonly number[] {
  const lower = label.toLowerCase();
  const inName = lower.indexOf(typed, lower.lastIndexOf('.') + 1);
  const at = inName < 0 ? lower.indexOf(typed) : inName;
  return typed === '' || at < 0 ? [] : [at, at + typed.length];
}

/** What arrives while somebody waits for it is shown. */
const newSchema = ViewPlugin.define((view) => {
  let isFirst = true;
  const stop = schema.subscribe(() => {
    if (!isFirst) queueMicrotask(() => showMore(view));
    isFirst = false;
  });
  return { destroy: stop };
});

function showMore(view: EditorView): void {
  const { state } = view;
  const { head, empty } = state.selection.main;
  if (!view.hasFocus || !empty || performance.now() > waitsUntil) return;
  const cursor = completionStatus(state) === null ? cursorIn(textOf(state), head) : undefined;
  if (completionStatus(state) !== null || (cursor !== undefined && (cursor.typed !== '' || cursor.path.length > 0))) startCompletion(view);
}

/** Enter begins a new line where what it would accept is typed already. */
const closeWhenTyped: Command = (view) => {
  const selected = selectedCompletion(view.state);
  const { head } = view.state.selection.main;
  if (isSql(selected) && view.state.sliceDoc(head - selected.sql.length, head) === selected.sql) closeCompletion(view);
  return false;
};

function isSql(completion: Completion | null): completion is SqlCompletion {
  return completion !== null && 'sql' in completion;
}

/** Completes keywords, and the names of the schema that all screens share. */
const completion: Extension = [
  Prec.highest(
    keymap.of([
      { key: 'Enter', run: closeWhenTyped },
      { key: 'Tab', run: acceptCompletion },
    ]),
  ),
  autocompletion({ override: [complete], icons: false, activateOnTypingDelay: DELAY_MS, updateSyncTime: 0, maxRenderedOptions: 50 }),
  newSchema,
];

const FOCUS = { outline: '2px solid var(--accent)', outlineOffset: '1px' };
const CHOSEN = { background: 'var(--accent-soft)', color: 'var(--text)' };

/** Colors come from style/tokens.css: custom properties reach into the shadow root. */
const THEME = EditorView.theme({
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

interface EditorOptions {
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
