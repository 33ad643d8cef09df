/** Offsets are in UTF-16 units of the text. */
export interface EditorHandle {
  selection(): { readonly from: number; readonly to: number };
  /** Selects, and scrolls there. */
  select(from: number, to: number): void;
  /** Puts a text in place of the selection. */
  insert(text: string): void;
  focus(): void;
}
