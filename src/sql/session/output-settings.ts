import type { BackendConnection } from '../../backend/connection.ts';
import { runAtOnce } from './messages.ts';
import type { Session } from './session.ts';

/**
 * The settings that decide what values look like as text. An organization can change their defaults for itself (ALTER ROLE …
 * SET), on the wire rightly so; here the text is read and written by encoders that expect these. `DateStyle` keeps its order of
 * day and month, which matters to what is sent. Every row names a setting that was wrong, and has put it right.
 */
const PIN = `SELECT pg_catalog.set_config(name, wanted, false)
FROM (VALUES ('DateStyle', 'ISO', '^ISO'), ('IntervalStyle', 'postgres', '^postgres$'), ('bytea_output', 'hex', '^hex$'), ('extra_float_digits', '1', '^[123]$'), ('array_nulls', 'on', '^on$'))
  AS pinned(name, wanted, accepted)
WHERE pg_catalog.current_setting(name) !~ accepted`;

/** Backends whose defaults are known to be right; a backend's defaults never change while it lives. */
const AS_EXPECTED = new WeakSet<BackendConnection>();

/** Whether {@link pinSettings} has nothing to do. */
export function hasExpectedSettings(backend: BackendConnection): boolean {
  return AS_EXPECTED.has(backend);
}

/**
 * Sees to it that values come as the encoders expect them. Costs nothing after a backend's first time, except where an
 * organization has set it otherwise.
 */
export async function pinSettings(session: Session): Promise<void> {
  const { backend } = session.lease;
  if (AS_EXPECTED.has(backend)) return;
  let changed = 0;
  await session.request(runAtOnce(PIN), {
    row: () => {
      changed += 1;
    },
  });
  if (changed === 0) AS_EXPECTED.add(backend);
  else session.mustBeReset();
}
