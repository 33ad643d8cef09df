import type { Scope } from '../names/scope.ts';
import type { Content } from '../tokens/content.ts';
import { EditList, type Edits } from './edits.ts';

/** Edits of a text, given in the offsets of any scope in it: a literal in a function's body, say. */
export class ScopedEdits {
  readonly #list: EditList;

  /** @param bytes the text is bytes, decoded as latin1 */
  constructor(text: string, bytes: boolean) {
    this.#list = new EditList(text, bytes);
  }

  /** In the order of the text, not overlapping. */
  get edits(): Edits {
    return this.#list;
  }

  /**
   * @param text without backslashes; quotes are doubled as often as the scope's quotes require
   * @returns the edit's index
   */
  add(scope: Scope, start: number, end: number, text: string): number {
    const { outer, content } = scope;
    return outer === undefined || content === undefined
      ? this.#list.add(start, end, text)
      : this.addWithin(outer, content, start, end, text);
  }

  /** As {@link add}, in what a literal or quoted identifier of the scope says. */
  addWithin(scope: Scope, content: Content, start: number, end: number, text: string): number {
    const from = content.start(start);
    return this.add(scope, from, start === end ? from : content.end(end), content.written(text));
  }

  remove(indexes: ReadonlySet<number>): void {
    this.#list.remove(indexes);
  }
}
