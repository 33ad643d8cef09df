import { elementsOf, membersOf } from './raw-json.ts';

/** The rows of a reply in `rowMode: array`. */
export function rowsOf(reply: string): readonly (readonly string[])[] {
  const [at] = membersOf(reply).get('rows') ?? [];
  return at === undefined ? [] : elementsOf(reply, at).map((row) => elementsOf(row));
}
