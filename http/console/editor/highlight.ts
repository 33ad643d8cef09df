import { EditorState, type Extension, type Range, RangeSet } from '@codemirror/state';
import { Decoration, type DecorationSet, EditorView, ViewPlugin, type ViewUpdate } from '@codemirror/view';
import { isString, Lexer, Token, type TokenKind } from '../../../src/syntax/scanner.ts';
import { OTHER_KEYWORDS, TYPES, USUAL_KEYWORDS } from './completion/keywords-and-types.ts';
import { textOf } from './document-text.ts';

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

const STYLE = EditorView.theme({
  '.cm-keyword': { color: 'var(--keyword)' },
  '.cm-type': { color: 'var(--name)' },
  '.cm-string': { color: 'var(--string)' },
  '.cm-number': { color: 'var(--number)' },
  '.cm-comment': { color: 'var(--comment)' },
});

export const highlighting: Extension = [
  ViewPlugin.fromClass(Highlighter, { decorations: ({ decorations }) => decorations }),
  EditorState.languageData.of(() => [{ commentTokens: { line: '--', block: { open: '/*', close: '*/' } } }]),
  STYLE,
];
