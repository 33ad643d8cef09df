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
import { EditorSelection, type Extension, Prec } from '@codemirror/state';
import { type Command, type EditorView, keymap, ViewPlugin } from '@codemirror/view';
import { refreshSchemaSoon, schema } from '../../api/load-schema.ts';
import { textOf } from '../document-text.ts';
import { cursorIn } from './cursor.ts';
import { type Option, optionsAt } from './options.ts';

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
export const completion: Extension = [
  Prec.highest(
    keymap.of([
      { key: 'Enter', run: closeWhenTyped },
      { key: 'Tab', run: acceptCompletion },
    ]),
  ),
  autocompletion({ override: [complete], icons: false, activateOnTypingDelay: DELAY_MS, updateSyncTime: 0, maxRenderedOptions: 50 }),
  newSchema,
];
