import { isDeepStrictEqual } from 'node:util';
import type { ServerStatement } from '../../backend/prepared-statements.ts';
import type { LatencyBaseline, StatementLatency } from '../../backend/statement-latency.ts';
import { registryOf, type StatementRegistry } from '../../multiplex/statement-registry.ts';
import { isSameShape } from '../../protocol/statement-shape.ts';
import type { Lease } from '../../router/lease.ts';
import type { Tenant } from '../../router/tenant.ts';
import type { SideEffects } from '../../syntax/traits/side-effects.ts';
import type { Field } from '../json/row.ts';
import type { PostgresType } from '../result/builtin-types.ts';
import { ResultShape } from '../result/result.ts';
import type { ResultFormat } from '../result/result-format.ts';
import type { Description, Session } from '../session/session.ts';

/** What Postgres makes of a statement, in our terms. */
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

  /** How its result is written; made once for each layout. */
  shape(layout: ResultFormat): ResultShape {
    const shape = this.#shapes.get(layout) ?? new ResultShape(layout, this.#fields);
    this.#shapes.set(layout, shape);
    return shape;
  }

  /** Whether another description says the same of it. */
  isAs(other: Description): boolean {
    return isDeepStrictEqual(this.description, other);
  }
}

/** A statement that has been run before by a caller that wants values. */
export interface KnownStatement {
  readonly sideEffects: SideEffects;
  readonly described: DescribedStatement;
  /** Under this name backends prepare it: what bears the name is of this kind. */
  readonly server: ServerStatement;
  /** How long it takes, where it may share a backend with others. */
  readonly latency: StatementLatency | undefined;
  readonly baseline: LatencyBaseline;
}

/** Longer texts are not remembered. */
const TEXT_MAX_CHARACTERS = 16_384;
/** What a description takes, and what each column of it does. */
const DESCRIPTION_BYTES = 1_024;
const COLUMN_BYTES = 512;

/** What has been made of server statements, for as long as the registry knows them. */
const known = new WeakMap<ServerStatement, KnownStatement>();

export function findStatement(tenant: Tenant, sql: string): KnownStatement | undefined {
  if (sql.length > TEXT_MAX_CHARACTERS) return undefined;
  const server = registryOf(tenant.organization).findText(sql, contextOf(tenant));
  return server === undefined ? undefined : known.get(server);
}

/** What a session has just been told of a statement is remembered, if the statement can be run again. */
export function rememberStatement({ lease }: Session, sql: string, sideEffects: SideEffects, described: DescribedStatement): void {
  if (sql.length > TEXT_MAX_CHARACTERS || !sideEffects.isPlain) return;
  const registry = registryOf(lease.tenant.organization);
  const server = serverStatement(registry, sql, lease.tenant, described.description);
  const latency = sideEffects.leavesState === 'no' && !sideEffects.readsSequences ? registry.latencyOf(server) : undefined;
  known.set(server, { sideEffects, described, server, latency, baseline: registry.baseline });
  registry.weigh(server, DESCRIPTION_BYTES + COLUMN_BYTES * described.description.fields.length);
}

/** Another than before, where it has come to be described otherwise. */
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

/** From now on it is described anew, under another name; the backend has it no more. */
export function forgetStatement({ backend, tenant }: Pick<Lease, 'backend' | 'tenant'>, { server }: KnownStatement): void {
  backend.session.unprepare(server);
  registryOf(tenant.organization).forget(server);
}

/**
 * Sessions have the settings of their login, so that a text means what it does to wire sessions that have set nothing. Where
 * texts are rewritten it is looked up as it was written, which could be what another is rewritten to.
 */
function contextOf({ organization }: Tenant): string {
  return organization.placement.kind === 'schema' ? AS_WRITTEN : '';
}

const AS_WRITTEN = 'as written';
