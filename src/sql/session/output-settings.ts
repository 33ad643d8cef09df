import type { BackendConnection } from '../../backend/connection.ts';
import { extendedQuery } from './extended-query-messages.ts';
import type { SqlSession } from './sql-session.ts';

/**
 * Sets the settings that decide the text form of values. An organization can change their defaults (ALTER ROLE … SET), which
 * is right on the wire; the JSON encoders, however, expect these values. `DateStyle` keeps its order of
 * day and month, which input depends on. Every returned row names a setting that had another value and has been set.
 */
const SET_OUTPUT_SETTINGS = `SELECT pg_catalog.set_config(name, wanted, false)
FROM (VALUES ('DateStyle', 'ISO', '^ISO'), ('IntervalStyle', 'postgres', '^postgres$'), ('bytea_output', 'hex', '^hex$'), ('extra_float_digits', '1', '^[123]$'), ('array_nulls', 'on', '^on$'))
  AS expected(name, wanted, accepted)
WHERE pg_catalog.current_setting(name) !~ accepted`;

/** Backends whose defaults are known to be right. A backend's defaults never change. */
const HAVE_EXPECTED_SETTINGS = new WeakSet<BackendConnection>();

/** @returns whether it is known that {@link setOutputSettings} has nothing to do */
export function hasExpectedSettings(backend: BackendConnection): boolean {
  return HAVE_EXPECTED_SETTINGS.has(backend);
}

/**
 * Makes the server send values in the form that the encoders expect. It costs nothing after the first call for a backend, unless
 * the organization has other defaults.
 */
export async function setOutputSettings(session: SqlSession): Promise<void> {
  const { backend } = session.lease;
  if (HAVE_EXPECTED_SETTINGS.has(backend)) return;
  let changed = 0;
  await session.request(extendedQuery(SET_OUTPUT_SETTINGS), {
    row: () => {
      changed += 1;
    },
  });
  if (changed === 0) HAVE_EXPECTED_SETTINGS.add(backend);
  else session.mustBeReset();
}
