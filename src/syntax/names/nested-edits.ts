import { EditList, type Edits } from '../edits.ts';
import type { Content } from '../tokens/quoted-content.ts';
import type { Scope } from './scope.ts';

/** Collects the edits of a text. Offsets are those of any scope in it, for example of a literal in a function body. */
export class NestedEdits {
  readonly #list: EditList;

  /** @param bytes whether the text is bytes, decoded as Latin-1 */
  constructor(text: string, bytes: boolean) {
    this.#list = new EditList(text, bytes);
  }

  /** In the order of the text, not overlapping. */
  get edits(): Edits {
    return this.#list;
  }

  /**
   * @param text must not contain backslashes; quotes in it are doubled once for each string that encloses the scope
   * @returns the edit's index
   */
  add(scope: Scope, start: number, end: number, text: string): number {
    const { outer, content } = scope;
    return outer === undefined || content === undefined
      ? this.#list.add(start, end, text)
      : this.addWithin(outer, content, start, end, text);
  }

  /** As {@link add}, with offsets in the content of a literal or quoted identifier of the scope. */
  addWithin(scope: Scope, content: Content, start: number, end: number, text: string): number {
    const from = content.start(start);
    return this.add(scope, from, start === end ? from : content.end(end), content.written(text));
  }

  remove(indexes: ReadonlySet<number>): void {
    this.#list.remove(indexes);
  }
}
