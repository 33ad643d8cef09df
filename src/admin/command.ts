import type { Organization } from '../catalog/organizations/organization.ts';
import type { Origin } from '../observation.ts';
import type { Changed, Operator } from '../router/operator.ts';

/** @returns what to print */
export type Command = (operator: Operator, origin: Origin) => Promise<string>;

/** The arguments are no command; the message is the usage. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

const USAGE = `usage: npm run --silent admin -- <command>

  org list            all organizations
  org suspend <id>    ends its sessions and refuses its key until it is resumed
  org resume <id>
  org drop <id>       removes its data, role and keys for good; its audit log is kept
  key issue <id>      a new key for an organization that has lost its own; the old key becomes invalid`;

/** @throws UsageError */
export function parseCommand(words: readonly string[]): Command {
  const [noun, verb, id, ...rest] = words;
  const name = `${noun} ${verb}`;
  if (name === 'org list' && id === undefined) return async (operator) => table(await operator.organizations());
  const command = id === undefined || rest.length > 0 ? undefined : commandOn(name, id);
  if (command === undefined) throw new UsageError(USAGE);
  return command;
}

function commandOn(name: string, id: string): Command | undefined {
  switch (name) {
    case 'org suspend':
      return async (operator, origin) => changed(await operator.suspend(id, origin), 'it has been asked to end');
    case 'org resume':
      return async (operator, origin) => statusOf(await operator.resume(id, origin));
    case 'org drop':
      return async (operator, origin) =>
        changed(await operator.drop(id, origin), 'the drop is completed by the running service when it has ended');
    case 'key issue':
      return async (operator, origin) => `the new key of ${id}, shown only now: ${await operator.issueKey(id, origin)}`;
    default:
      return undefined;
  }
}

function statusOf({ id, status }: Organization): string {
  return `${id} is ${status}`;
}

/** @param rest what happens to processes that have not ended */
function changed({ organization, running }: Changed, rest: string): string {
  const status = statusOf(organization);
  return running === undefined ? status : `${status}; still running: ${running}; ${rest}`;
}

const HEADINGS = ['ID', 'STATUS', 'PLACEMENT', 'CREATED', 'NAME', 'E-MAIL'];

function table(organizations: readonly Organization[]): string {
  const rows = organizations.map(({ id, status, placement, createdAt, name, email }) =>
    [id, status, placement.kind, createdAt.toISOString(), name, email].map(printable),
  );
  const widths = HEADINGS.map((heading, column) => Math.max(heading.length, ...rows.map((row) => row[column]?.length ?? 0)));
  const line = (row: readonly string[]) =>
    row
      .map((text, column) => text.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd();
  return [HEADINGS, ...rows].map(line).join('\n');
}

/** Organizations choose their names, so control characters in them must not reach the terminal. */
function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '\ufffd');
}
