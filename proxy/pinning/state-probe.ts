import type { Settings } from '../../src/backend/session-state.ts';
import { decodeTextRow } from '../../src/protocol/backend.ts';
import { queryMessage } from '../../src/protocol/frontend.ts';
import type { CustomOptions } from '../../src/syntax/session-traits.ts';
import { literal } from '../checkout/settings-sql.ts';

/** The session state that outlives its transaction, as the server reports it. */
export interface SessionFacts {
  /** The settings that the session has set, with the values that the server shows. */
  readonly settings: Settings;
  /** The kinds of state that pin the session to its backend. */
  readonly held: ReadonlySet<HeldState>;
  /** The customized options that exist, of those asked for. */
  readonly options: CustomOptions;
}

export type HeldState = 'listen' | 'prepared' | 'cursor' | 'temp';

/** All names are qualified, because the client chooses the search path. pg_settings does not list the role. */
const PROBE = `SELECT 'setting', name, setting FROM pg_catalog.pg_settings WHERE source OPERATOR(pg_catalog.=) 'session'
UNION ALL (SELECT 'setting', 'role', r FROM pg_catalog.current_setting('role') r WHERE r OPERATOR(pg_catalog.<>) 'none')
UNION ALL (SELECT 'listen', NULL, NULL FROM pg_catalog.pg_listening_channels() LIMIT 1)
UNION ALL (SELECT 'prepared', NULL, NULL FROM pg_catalog.pg_prepared_statements WHERE from_sql LIMIT 1)
UNION ALL (SELECT 'cursor', NULL, NULL FROM pg_catalog.pg_cursors WHERE is_holdable LIMIT 1)
UNION ALL (SELECT 'temp', NULL, NULL WHERE pg_catalog.pg_my_temp_schema() OPERATOR(pg_catalog.<>) 0::pg_catalog.oid AND (
  EXISTS (SELECT 1 FROM pg_catalog.pg_class WHERE relnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())
  OR EXISTS (SELECT 1 FROM pg_catalog.pg_proc WHERE pronamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())
  OR EXISTS (SELECT 1 FROM pg_catalog.pg_type WHERE typnamespace OPERATOR(pg_catalog.=) pg_catalog.pg_my_temp_schema())))`;

/** These settings belong to the current transaction and not to the session. `transaction_timeout` does not. */
const TRANSACTIONAL: ReadonlySet<string> = new Set(['transaction_isolation', 'transaction_read_only', 'transaction_deferrable']);

/** Asks the server for the state of its session and collects the reply. */
export class StateProbe {
  readonly message: Buffer;
  readonly #settings = new Map<string, string>();
  readonly #held = new Set<HeldState>();
  readonly #options = new Set<string>();

  /**
   * @param custom names of settings that the server does not list
   * @param options customized options that may exist
   */
  constructor(custom: Iterable<string>, options: CustomOptions) {
    const ask = (kind: string, names: Iterable<string>) =>
      [...names].map(literal).map((name) => `\nUNION ALL SELECT '${kind}', ${name}, pg_catalog.current_setting(${name}, true)`);
    this.message = queryMessage([PROBE, ...ask('setting', custom), ...ask('option', options)].join(''));
  }

  /** @param body of a DataRow with three text columns */
  row(body: Buffer): void {
    const [kind, name, value] = decodeTextRow(body, 0);
    if (kind === 'setting' && name != null && value != null) {
      // A custom setting that has been reset still exists, with an empty value.
      if (!TRANSACTIONAL.has(name) && !(name.includes('.') && value === '')) this.#settings.set(name.toLowerCase(), value);
    } else if (kind === 'option') {
      if (name != null && value != null) this.#options.add(name);
    } else if (kind === 'listen' || kind === 'prepared' || kind === 'cursor' || kind === 'temp') this.#held.add(kind);
  }

  facts(): SessionFacts {
    return { settings: this.#settings, held: this.#held, options: this.#options };
  }
}
