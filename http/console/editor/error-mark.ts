import {
  type EditorState,
  type Extension,
  RangeSet,
  StateEffect,
  StateField,
  type Transaction,
  type TransactionSpec,
} from '@codemirror/state';
import {
  Decoration,
  type DecorationSet,
  EditorView,
  GutterMarker,
  gutterLineClass,
  hoverTooltip,
  showTooltip,
  type Tooltip,
} from '@codemirror/view';
import type { EditorError } from './error-range.ts';

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

const STYLE = EditorView.theme({
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

export const errorMark: Extension = [
  shownError,
  hoverTooltip((view, at) => {
    const error = view.state.field(shownError);
    return error !== undefined && at >= error.from && at <= error.to ? tooltipOf(error) : null;
  }),
  STYLE,
];

/** Marks the error, scrolls to it, and says it to screen readers; undefined takes the mark away. */
export function showError(state: EditorState, error: EditorError | undefined): TransactionSpec {
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
