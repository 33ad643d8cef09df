import { isDeepStrictEqual } from 'node:util';
import { LatencyBaseline, StatementLatency } from '../../backend/latency.ts';
import { newServerStatement, type ServerStatement } from '../../backend/prepared-statements.ts';
import type { Organization } from '../../catalog/organizations/organization.ts';
import { BoundedMap } from '../../runtime/bounded-map.ts';
import type { Field } from '../json/row.ts';
import type { PostgresType } from '../result/builtin-types.ts';
import { ResultShape } from '../result/result.ts';
import type { ResultFormat } from '../result/result-format.ts';
import type { Description } from '../session/session.ts';
import type { SideEffects } from '../session/side-effects.ts';
import { mayShare } from './shareable-sql.ts';

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

/** A statement that has been run before. */
export interface KnownStatement {
  readonly sql: string;
  readonly sideEffects: SideEffects;
  readonly described: DescribedStatement;
  /** Under this name backends prepare it. A new description comes with a new name: what bears the old one is of the old kind. */
  readonly server: ServerStatement;
  /** How long it takes, where it may share a backend with others. */
  readonly latency: StatementLatency | undefined;
  readonly baseline: LatencyBaseline;
}

const STATEMENTS_MAX = 500;
const TEXT_MAX_CHARACTERS = 16_384;
const ALL_TEXT_MAX_CHARACTERS = 1_048_576;

/** The statements of one organization that have been run, by their text; those that were not used for longest go first. */
export class StatementCache {
  /** They go when nobody holds the organization's credential any more. */
  static readonly #ofOrganizations = new WeakMap<Organization, StatementCache>();
  readonly #baseline = new LatencyBaseline();
  readonly #known = new BoundedMap<string, KnownStatement>({
    maxEntries: STATEMENTS_MAX,
    maxWeight: ALL_TEXT_MAX_CHARACTERS,
    weightOf: (sql) => sql.length,
  });

  static of(organization: Organization): StatementCache {
    const cache = StatementCache.#ofOrganizations.get(organization) ?? new StatementCache();
    StatementCache.#ofOrganizations.set(organization, cache);
    return cache;
  }

  get size(): number {
    return this.#known.size;
  }

  find(sql: string): KnownStatement | undefined {
    return this.#known.use(sql);
  }

  remember(sql: string, sideEffects: SideEffects, described: DescribedStatement): void {
    this.#known.delete(sql);
    if (sql.length > TEXT_MAX_CHARACTERS || !sideEffects.isPlain) return;
    const server = newServerStatement(Buffer.from(`${sql}\0\0\0`));
    const latency = sideEffects.isClean && !sideEffects.readsSequences && mayShare(sql) ? new StatementLatency() : undefined;
    this.#known.set(sql, { sql, sideEffects, described, server, latency, baseline: this.#baseline });
  }

  /** Unless another one has taken its place. */
  forget(known: KnownStatement): void {
    const { sql } = known;
    if (this.#known.get(sql) !== known) return;
    this.#known.delete(sql);
  }
}
