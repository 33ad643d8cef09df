import type { Placement } from '../catalog/organization.ts';
import { ServiceError } from '../errors.ts';
import { hasCitus } from '../placement/citus.ts';
import { asServiceError } from '../placement/cluster.ts';
import { restrictedScopesOf } from '../placement/restricted-roles.ts';
import { codeOf, textOf } from '../protocol/backend.ts';
import { clientText } from '../rewriting/rewriter.ts';
import type { CopyData, SchemaCopying } from '../router/moves.ts';
import type { ServedCluster } from '../router/served-cluster.ts';
import { checkLargeObjects } from './contents.ts';
import { copyOrganization } from './copy.ts';
import { type CopyOptions, findPgDump, type OpenPlacement, openTenantSession } from './definitions.ts';

/** The application_name of the sessions that copy a schema for a clone. */
const CLONER_NAME = 'postern clone';

/** How many schemas a process copies at the same time. Each needs two processes of `pg_dump`, and their output in memory. */
const AT_ONCE = 2;
const DEFINITIONS_MAX_BYTES = 4 * 1024 * 1024;

const SQLSTATE = /^[0-9A-Z]{5}$/;

/** Copies of schemas for clones, made in the same way as for moves. */
export class SchemaCopies implements SchemaCopying {
  #running = 0;

  async run<Result>(server: ServedCluster, work: (copy: CopyData) => Promise<Result>): Promise<Result> {
    if (this.#running >= AT_ONCE)
      throw new ServiceError('too_many_requests', `${AT_ONCE} organizations are being cloned already`, { retryAfterS: 5 });
    this.#running += 1;
    try {
      await checkSchemaCopies(server);
      return await work((source, copy, timeoutMs) => copySchema(server, source, copy, timeoutMs));
    } finally {
      this.#running -= 1;
    }
  }
}

/** @throws ServiceError `unsupported_statement` where schemas cannot be copied */
export async function checkSchemaCopies({ platform }: ServedCluster): Promise<void> {
  const refuse = (why: string) =>
    new ServiceError('unsupported_statement', `an organization in the schema placement cannot be cloned here: ${why}`, {
      hint: 'Load a dump of it (pg_dump -n) into a new organization.',
    });
  if (await platform.runInShared(hasCitus)) throw refuse('it is on Citus');
  const { program, needed, found } = await findPgDump(platform.cluster);
  if (program === undefined) throw refuse(`the service needs ${needed}, and ${found}`);
}

async function copySchema(server: ServedCluster, source: Placement, copy: Placement, timeoutMs: number): Promise<void> {
  const deadline = AbortSignal.timeout(timeoutMs);
  const options = { name: CLONER_NAME, timeoutMs, definitionsMaxBytes: DEFINITIONS_MAX_BYTES, signal: deadline };
  const restricted = await server.platform.run((session) => restrictedScopesOf(session, source.role));
  await server.provisioning((provisioner) => provisioner.provision(copy, restricted));
  await checkLargeObjects(server.platform, source);
  try {
    await withSessions(server, [source, copy], options, (own, other) => copyOrganization(own, other, options));
  } catch (cause) {
    // A statement that still runs there would keep locks on the organization's tables.
    await server.provisioning((provisioner) => provisioner.terminateNamed(source, CLONER_NAME));
    if (deadline.aborted) throw new ServiceError('statement_timeout', `the data could not be copied within ${timeoutMs} ms`, { cause });
    throw inClientsWords(cause, [source, copy]);
  }
}

/** Runs `work` with sessions at both placements, which are lost when the time is over. */
async function withSessions<Result>(
  server: ServedCluster,
  [source, copy]: readonly [Placement, Placement],
  options: CopyOptions & { readonly signal: AbortSignal },
  work: (source: OpenPlacement, copy: OpenPlacement) => Promise<Result>,
): Promise<Result> {
  const own = await openTenantSession(server, source, options);
  const opened = [own];
  const end = async () => {
    for (const session of opened) await session.end();
  };
  const abort = () => void end();
  options.signal.addEventListener('abort', abort);
  try {
    const other = await openTenantSession(server, copy, options);
    opened.push(other);
    options.signal.throwIfAborted();
    return await work({ server, placement: source, session: own }, { server, placement: copy, session: other });
  } finally {
    options.signal.removeEventListener('abort', abort);
    await end();
  }
}

/** An error of the organization's own definitions or rows, such as a check that the rows do not keep any more, is the caller's. */
function inClientsWords(cause: unknown, placements: readonly Placement[]): unknown {
  const error = asServiceError(cause);
  if (error instanceof ServiceError || !SQLSTATE.test(codeOf(error))) return error;
  const reason = placements.reduce((text, { schema }) => clientText(text, schema), textOf(error));
  return new ServiceError('invalid_request', `the data cannot be copied: ${reason}`, { cause });
}
