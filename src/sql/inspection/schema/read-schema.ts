import { createHash } from 'node:crypto';
import type { Placement } from '../../../catalog/organization.ts';
import { ServiceError } from '../../../errors.ts';
import type { Lease } from '../../../router/lease.ts';
import { TimeSlices } from '../../../runtime/event-loop.ts';
import { keepResults, RESULTS_MAX_BYTES } from '../../result/result-budget.ts';
import { extendedQuery } from '../../session/extended-query-messages.ts';
import type { SessionOptions, SqlSession } from '../../session/sql-session.ts';
import type { Warning } from '../../session/warnings.ts';
import { inspect } from '../inspection-transaction.ts';
import { LimitedJsonDocument } from './limited-json-document.ts';
import { extensionsSql, functionOidsSql, functionsSql, schemasSql, sequencesSql, typesSql } from './other-objects.ts';
import { parametersOf } from './pg-catalog-expressions.ts';
import { tableOidsSql, tablesSql } from './tables.ts';

export interface SchemaRequest extends SessionOptions {
  /** The only schema to show, as clients know it. */
  readonly schema?: string;
}

export interface SchemaReply {
  /** As UTF-8 JSON. */
  readonly body: Buffer;
  /** Of the body. */
  readonly hash: string;
}

/** Of each kind of object. */
const OBJECTS_MAX = 10_000;
const SCHEMAS_MAX = 1_000;
const OBJECTS_AT_ONCE = 200;
/** What follows the arrays. */
const END_MAX_BYTES = 4_096;

/**
 * What an organization's database is made of, as far as the role of the lease may see it. PostgreSQL writes the JSON, so that Postern
 * only copies it. Takes over the lease.
 * @throws ServiceError `not_found` when there is no such schema; `statement_timeout`, `query_canceled`, `response_too_large`, `backend_lost`
 * @throws PostgresError lock_not_available while somebody has locked a table exclusively
 */
export async function readSchema(lease: Lease, request: SchemaRequest): Promise<SchemaReply> {
  const body = await inspect(lease, request, (session) => readParts(session, lease.tenant.organization.placement, request));
  return { body, hash: await hashOf(body) };
}

async function readParts(session: SqlSession, placement: Placement, { schema }: SchemaRequest): Promise<Buffer> {
  // Many subqueries are estimated as expensive, and compiling them would take longer than running them.
  await session.query(`SELECT pg_catalog.set_config('jit', 'off', true)`);
  const parts = new Parts(session);
  const schemas = await readSchemas(session, placement, schema, parts);
  const parameters = parametersOf(placement, schemas);
  const limit = OBJECTS_MAX + 1;
  /**
   * Locks that definitions take are kept until the end of the transaction, or of a subtransaction. Of many views they could fill the
   * server's table of locks, so they are read in portions.
   */
  const addInPortions = async (name: string, oidsSql: string, portionSql: string) => {
    const oids = (await session.rows(oidsSql, parameters)).map(([oid]) => oid ?? '');
    await parts.add(name, async (addRows) => {
      for (let at = 0; at < oids.length; at += OBJECTS_AT_ONCE) {
        await session.query('SAVEPOINT portion');
        await addRows(portionSql, parametersOf(placement, oids.slice(at, at + OBJECTS_AT_ONCE)));
        await session.query('ROLLBACK TO SAVEPOINT portion');
      }
    });
  };
  await addInPortions('tables', tableOidsSql(placement, limit), tablesSql(placement));
  await parts.add('types', (addRows) => addRows(typesSql(placement, limit), parameters));
  await parts.add('sequences', (addRows) => addRows(sequencesSql(placement, limit), parameters));
  await addInPortions('functions', functionOidsSql(limit), functionsSql(placement));
  await parts.add('extensions', (addRows) => addRows(extensionsSql(placement, limit, schema !== undefined), parameters));
  return parts.end(placement.kind === 'database' && schema === undefined ? ONE_SCHEMA : undefined);
}

/** @returns the oids of the schemas that are shown */
async function readSchemas(session: SqlSession, placement: Placement, asked: string | undefined, parts: Parts): Promise<readonly string[]> {
  // In the `schema` placement the other schemas are those of other organizations.
  const isPublic = asked === 'public' || (asked === undefined && placement.kind === 'schema');
  const mayExist = isPublic || placement.kind === 'database';
  const only = isPublic ? placement.schema : (asked ?? null);
  const found = mayExist ? await session.rows(schemasSql(placement, SCHEMAS_MAX + 1), [placement.schema, only]) : [];
  if (found.length === 0 && asked !== undefined) throw new ServiceError('not_found', `there is no schema "${asked}"`);
  parts.addSchemas(found.map(([, json]) => json ?? ''));
  return found.slice(0, SCHEMAS_MAX).map(([oid]) => oid ?? '');
}

/** Before the only value of a row are the number of columns, as two bytes, and the value's length, as four. */
const VALUE_OFFSET = 6;

type AddRows = (sql: string, parameters: readonly string[]) => Promise<void>;

/** The arrays of the reply, one after the other. */
class Parts {
  readonly #session: SqlSession;
  readonly #items: LimitedJsonDocument;
  readonly #incomplete: string[] = [];

  constructor(session: SqlSession) {
    this.#session = session;
    this.#items = new LimitedJsonDocument(RESULTS_MAX_BYTES - END_MAX_BYTES, (bytes) => this.#spend(bytes));
  }

  addSchemas(documents: readonly string[]): void {
    this.#items.open('{"schemas":', SCHEMAS_MAX);
    for (const document of documents) this.#items.add(Buffer.from(document));
    this.#close('schemas');
  }

  /** @param rows adds the rows of statements that have one column, which is a JSON document */
  async add(name: string, rows: (addRows: AddRows) => Promise<void>): Promise<void> {
    this.#items.open(`,"${name}":`, OBJECTS_MAX);
    const row = (source: Buffer, start: number, end: number) => this.#items.add(source, start + VALUE_OFFSET, end);
    await rows(async (sql, parameters) => {
      await this.#session.request(extendedQuery(sql, parameters), { row });
    });
    this.#close(name);
  }

  /** The whole reply. @param hint what to do if it is not complete */
  end(hint: string | undefined): Buffer {
    const isComplete = this.#incomplete.length === 0;
    const warnings = isComplete ? '' : `,"warnings":${JSON.stringify([incomplete(this.#incomplete, hint)])}`;
    return this.#items.end(`,"isComplete":${isComplete}${warnings}}`);
  }

  #close(name: string): void {
    if (!this.#items.close()) this.#incomplete.push(name);
  }

  #spend(bytes: number): boolean {
    const refusal = keepResults(this.#session.results, bytes);
    if (refusal !== undefined) this.#session.abort(refusal);
    return refusal === undefined;
  }
}

/** SQLSTATE program_limit_exceeded. */
const LIMIT_EXCEEDED = '54000';
const ONE_SCHEMA = 'Ask for one schema at a time: GET /api/schema?schema=…';

function incomplete(names: readonly string[], hint: string | undefined): Warning {
  return {
    severity: 'WARNING',
    code: LIMIT_EXCEEDED,
    message: `not all ${names.join(', ')} are shown: at most ${OBJECTS_MAX} of a kind, and ${RESULTS_MAX_BYTES} bytes in all`,
    ...(hint === undefined ? {} : { hint }),
  };
}

const HASHED_AT_ONCE_BYTES = 262_144;

async function hashOf(body: Buffer): Promise<string> {
  const hash = createHash('sha256');
  const slices = new TimeSlices();
  for (let at = 0; at < body.length; at += HASHED_AT_ONCE_BYTES) {
    hash.update(body.subarray(at, at + HASHED_AT_ONCE_BYTES));
    await slices.pause();
  }
  return hash.digest('base64url');
}
