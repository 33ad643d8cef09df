import type { EditorState, Text } from '@codemirror/state';

/** Offsets are in UTF-16 units of the text. */
export interface EditorHandle {
  selection(): { readonly from: number; readonly to: number };
  /** Selects, and scrolls there. */
  select(from: number, to: number): void;
  /** Puts a text in place of the selection. */
  insert(text: string): void;
  focus(): void;
}

const texts = new WeakMap<Text, string>();

/** The whole text, with its carriage returns; put together once. */
export function textOf({ doc }: EditorState): string {
  const known = texts.get(doc);
  if (known !== undefined) return known;
  const text = doc.sliceString(0, doc.length, '\n');
  texts.set(doc, text);
  return text;
}
