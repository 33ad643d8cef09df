import { signal } from '@preact/signals';
import type { Destruction } from '../../../../../src/syntax/destructive-statements.ts';
import type { Statement } from './statements.ts';

/** Something that waits for somebody to confirm it. */
export interface PendingConfirmation {
  readonly destructions: readonly { readonly statement: Statement; readonly found: readonly Destruction[] }[];
  readonly confirm: () => void;
}

export const pendingConfirmation = signal<PendingConfirmation | undefined>(undefined);
