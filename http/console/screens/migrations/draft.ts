import { effect, type Signal, signal } from '@preact/signals';
import { keepText, keptText } from '../../session/session-storage.ts';
import type { MigrationRequest } from './migration-calls.ts';

/** The migration that is being written. */
export interface Draft {
  readonly name: string;
  readonly sql: string;
  readonly hasRollback: boolean;
  readonly rollbackSql: string;
  readonly isTransaction: boolean;
  /** Milliseconds; empty: what the server does by default. */
  readonly timeLimit: string;
}

const EMPTY: Draft = { name: '', sql: '', hasRollback: false, rollbackSql: '', isTransaction: true, timeLimit: '' };
const TEXT = 'migration';

export const draft = signal<Draft>({ ...EMPTY, ...kept() });

effect(() => keepText(TEXT, JSON.stringify(draft.value)));

/** The texts alone, for their editors. */
export const sqlText = textOf('sql');
export const rollbackText = textOf('rollbackSql');

function textOf(name: 'sql' | 'rollbackSql'): Signal<string> {
  const text = signal(draft.peek()[name]);
  effect(() => {
    text.value = draft.value[name];
  });
  effect(() => {
    const { value } = text;
    if (draft.peek()[name] !== value) change({ [name]: value });
  });
  return text;
}

export function change(changed: Partial<Draft>): void {
  draft.value = { ...draft.peek(), ...changed };
}

export function begin(next: Partial<Draft> = {}): void {
  draft.value = { ...EMPTY, ...next };
}

export function requestOf({ name, sql, hasRollback, rollbackSql, isTransaction, timeLimit }: Draft, dryRun: boolean): MigrationRequest {
  return {
    name: name.trim(),
    sql,
    dryRun,
    transaction: isTransaction,
    ...(hasRollback && rollbackSql.trim() !== '' ? { rollbackSql } : {}),
    ...(timeLimit === '' ? {} : { timeoutMs: Number(timeLimit) }),
  };
}

function kept(): Partial<Draft> {
  try {
    return JSON.parse(keptText(TEXT) ?? '{}');
  } catch {
    return {};
  }
}
