import { signal } from '@preact/signals';
import type { QueryTab, SavedLink } from '../sql-screen-state.ts';

/** What the dialog asks for before a query is saved. */
export type SaveQuestion =
  | { readonly kind: 'name'; readonly tab: QueryTab }
  | { readonly kind: 'conflict'; readonly tab: QueryTab; readonly theirs: SavedLink };

export const saveQuestion = signal<SaveQuestion | undefined>(undefined);
