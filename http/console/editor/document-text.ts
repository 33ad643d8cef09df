import type { EditorState, Text } from '@codemirror/state';

const texts = new WeakMap<Text, string>();

/** The whole text, with its carriage returns; put together once. */
export function textOf({ doc }: EditorState): string {
  const known = texts.get(doc);
  if (known !== undefined) return known;
  const text = doc.sliceString(0, doc.length, '\n');
  texts.set(doc, text);
  return text;
}
