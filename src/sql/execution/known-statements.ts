import { isDeepStrictEqual } from 'node:util';
import {
  type LatencyBaseline,
  type ServerStatement,
  type Staleness,
  type StatementLatency,
  stalenessOf,
} from '../../backend/session-state.ts';
import type { StatementCounter } from '../../catalog/statement-counters.ts';
import { ServiceError } from '../../errors.ts';
import { registryOf, type StatementRegistry } from '../../multiplex/statement-registry.ts';
import { isSameShape, PostgresError } from '../../protocol/backend.ts';
import type { Lease, Tenant } from '../../router/lease.ts';
import { canBePreparedAgain } from '../../syntax/session-traits.ts';
import type { SideEffects } from '../../syntax/side-effects.ts';
import type { Field } from '../json/row.ts';
import type { PostgresType } from '../result/builtin-types.ts';
import type { ResultFormat } from '../result/formats/result-format.ts';
import { ResultShape } from '../result/result-writer.ts';
import type { SqlSession } from '../session/sql-session.ts';
import type { Description } from '../session/statement-description.ts';

/** Postgres' description of a statement, with its types looked up. */
export class DescribedStatement {
  readonly description: Description;
  readonly parameters: readonly PostgresType[];
  readonly #fields: readonly Field[];
  readonly #shapes = new Map<ResultFormat, ResultShape>();

  constructor(description: Description, parameters: readonly PostgresType[], fields: readonly Field[]) {
    this.description = description;
    this.parameters = parameters;
    this.#fields = fields;
  }

  /** @returns how the result is written in a format; made once for each format */
  shape(format: ResultFormat): ResultShape {
    const shape = this.#shapes.get(format) ?? new ResultShape(format, this.#fields);
    this.#shapes.set(format, shape);
    return shape;
  }

  /** @returns whether another description says the same */
  matches(other: Description): boolean {
    return isDeepStrictEqual(this.description, other);
  }
}

/** What is known of a statement that the HTTP door has run before. */
export interface KnownStatement {
  readonly sideEffects: SideEffects;
  readonly described: DescribedStatement;
  /** The prepared statement on backends. Whatever has its name there fits {@link described}. */
  readonly server: ServerStatement;
  /** How long the statement takes; undefined if it must not share a backend with others. */
  readonly latency: StatementLatency | undefined;
  readonly baseline: LatencyBaseline;
  /** Counts its runs for the query statistics. */
  readonly counted: StatementCounter | undefined;
}

/** Statements with longer texts are not remembered. */
const TEXT_MAX_CHARACTERS = 16_384;
/** The memory that a description takes, and that each of its columns takes in addition. */
const DESCRIPTION_BYTES = 1_024;
const COLUMN_BYTES = 512;

/** What is known of server statements. It is kept for as long as the registry keeps these. */
const knownStatements = new WeakMap<ServerStatement, KnownStatement>();

/** @returns undefined also where tables or types have changed since, so that the text may mean something else */
export function findStatement(tenant: Tenant, sql: string): KnownStatement | undefined {
  if (sql.length > TEXT_MAX_CHARACTERS) return undefined;
  const server = registryOf(tenant.organization).findText(sql, contextOf(tenant));
  return server === undefined ? undefined : knownStatements.get(server);
}

/**
 * Remembers the description that a session has just received, if the statement can be run again.
 * @param schemaVersion the registry's before the statement was described
 */
export function rememberStatement(
  { lease }: SqlSession,
  sql: string,
  sideEffects: SideEffects,
  described: DescribedStatement,
  schemaVersion: number,
): void {
  if (sql.length > TEXT_MAX_CHARACTERS || !sideEffects.isPlain || !canBePreparedAgain(sql)) return;
  const registry = registryOf(lease.tenant.organization);
  if (registry.schemaVersion !== schemaVersion) return;
  const server = serverStatement(registry, sql, lease.tenant, described.description);
  const latency = sideEffects.leavesState === 'no' && !sideEffects.readsSequences ? registry.latencyOf(server) : undefined;
  const counted = lease.tenant.statements?.find(sql)[0];
  knownStatements.set(server, { sideEffects, described, server, latency, baseline: registry.baseline, counted });
  registry.weigh(server, DESCRIPTION_BYTES + COLUMN_BYTES * described.description.fields.length);
}

/** @returns the server statement of a text; a new one if the known one was described differently */
function serverStatement(registry: StatementRegistry, sql: string, tenant: Tenant, { shape }: Description): ServerStatement {
  const definition = Buffer.from(`${sql}\0\0\0`);
  const context = contextOf(tenant);
  let server = registry.intern(definition, context);
  if (server.shape !== undefined && !isSameShape(server.shape, shape)) {
    registry.forget(server);
    server = registry.intern(definition, context);
  }
  server.shape ??= shape;
  return server;
}

/** Makes the next run describe the statement again, and prepare it under another name, unless it is only to be checked. */
export function forgetIfStale(
  { backend, tenant }: Pick<Lease, 'backend' | 'tenant'>,
  { server }: KnownStatement,
  staleness: Staleness,
): void {
  if (staleness === 'check') return;
  backend.session.unprepare(server);
  const registry = registryOf(tenant.organization);
  if (staleness === 'forget') registry.forget(server);
  else registry.invalidate();
}

/**
 * The settings in which a text is looked up. Sessions of the HTTP door have the settings of their login, so a text means the
 * same as in wire sessions that have changed none. In the `schema` placement the HTTP door looks up texts before they are
 * rewritten and the wire door afterwards. Their contexts differ, because one text as written may equal another as rewritten.
 */
function contextOf({ organization }: Tenant): string {
  return organization.placement.kind === 'schema' ? AS_WRITTEN : '';
}

const AS_WRITTEN = 'as written';

/** As `stalenessOf` says of an error of Postgres, and of the encoding of parameters, whose types are remembered. */
export function stalenessOfRun(error: unknown, isBound: boolean): Staleness {
  if (error instanceof ServiceError) return error.kind === 'invalid_request' ? 'check' : undefined;
  return error instanceof PostgresError ? stalenessOf(error.fields, isBound) : undefined;
}
