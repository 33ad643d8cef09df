import pg from 'pg';
import { defaultPrivilegesOf, MAKE_PUBLIC } from '../../placement/database.ts';
import { roleExists } from '../../placement/platform-role.ts';
import { readerOf } from '../../placement/reader-role.ts';
import { applySettings, readSettings } from '../../placement/roles.ts';
import type { OpenPlacement } from '../tenant-session.ts';
import { forClone } from './clone-names.ts';
import { isClone, renameInRoutines } from './restore-definitions.ts';

/** Settings whose values are identifiers. Those of others are data. */
const SETTINGS_OF_NAMES = new Set(['search_path', 'role', 'session_authorization']);

/** What is not in a dump of one schema: its name, default privileges, and settings of the role. */
export async function completeDefinitions(source: OpenPlacement, target: OpenPlacement): Promise<void> {
  const { placement: from, session: own } = source;
  const { placement: to, session: copy } = target;
  const { platform } = target.server;
  if (to.kind === 'database') {
    if (from.kind === 'schema') {
      await copy.client.query(`ALTER SCHEMA ${pg.escapeIdentifier(from.schema)} RENAME TO public; ${MAKE_PUBLIC}`);
      await renameInRoutines(copy.client, from);
    }
    const reader = readerOf(to.role);
    const hasReaders = await platform.run((session) => roleExists(session, reader));
    if (hasReaders) await copy.client.query(`GRANT USAGE ON SCHEMA public TO ${pg.escapeIdentifier(reader)}`);
  }
  const named = (text: string) => (isClone(from, to) ? forClone(text, from, to) : text);
  for (const statement of await defaultPrivilegesOf(own.client, from.role)) await copy.client.query(named(statement));
  const ofPlatform = Object.keys(platform.cluster.roleSettings);
  const settings = await source.server.platform.run((session) => readSettings(session, from, ofPlatform));
  const isNewRole = isClone(from, to) || from.cluster !== to.cluster;
  const carried = settings.filter(({ inDatabase }) => inDatabase || isNewRole);
  await applySettings(
    copy.backend,
    to,
    carried.map((setting) => (SETTINGS_OF_NAMES.has(setting.name.toLowerCase()) ? { ...setting, value: named(setting.value) } : setting)),
  );
}
