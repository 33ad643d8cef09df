import { serialize } from 'pg-protocol';
import type { BackendConnection } from '../backend/connection.ts';
import { registryOf } from '../multiplex/statement-registry.ts';
import { decodeTextRow } from '../protocol/backend.ts';
import { BoundedMap } from '../runtime/bounded-map.ts';
import { arrayOf, BUILTIN_TYPES, type PostgresType } from './json-values.ts';
import type { SqlSession } from './session.ts';

/** The needed columns of pg_type. */
interface CatalogEntry {
  readonly oid: number;
  readonly name: string;
  /** The element type of an array; else 0. */
  readonly elementOid: number;
  /** The base type of a domain; else 0. */
  readonly baseOid: number;
  readonly delimiter: string;
}

/** The requested types, with their element and base types. Fixed-length types with elements, such as point, are no arrays. */
const LOOK_UP = `WITH RECURSIVE wanted(oid) AS (
  SELECT pg_catalog.unnest($1::pg_catalog.oid[])
  UNION SELECT made_of.oid FROM wanted JOIN pg_catalog.pg_type t ON t.oid = wanted.oid, LATERAL (VALUES (t.typelem), (t.typbasetype)) AS made_of(oid)
) SELECT t.oid, t.typname, CASE WHEN t.typcategory = 'A' AND t.typlen = -1 AND t.typtype = 'b' THEN t.typelem ELSE 0 END, t.typbasetype, t.typdelim
FROM wanted JOIN pg_catalog.pg_type t ON t.oid = wanted.oid`;

/** How many types of one database are remembered. */
const TYPES_MAX = 10_000;

/**
 * The types of a backend's database that are not built in. They are remembered as long as the backend exists and no statement of the
 * organization is known to have changed tables or types, because types can be renamed.
 */
export class TypeCatalog {
  static readonly #ofBackends = new WeakMap<BackendConnection, TypeCatalog>();
  /** That of the statement registry before any type was looked up. */
  readonly schemaVersion: number;
  readonly #known = new BoundedMap<number, PostgresType>({ maxEntries: TYPES_MAX });

  private constructor(schemaVersion: number) {
    this.schemaVersion = schemaVersion;
  }

  /** In a session that has changed types itself, those are looked up that it sees. */
  static of({ lease, hasChangedSchema }: SqlSession): TypeCatalog {
    const { schemaVersion } = registryOf(lease.tenant.organization);
    const known = TypeCatalog.#ofBackends.get(lease.backend);
    if (known?.schemaVersion === schemaVersion && !hasChangedSchema) return known;
    const types = new TypeCatalog(schemaVersion);
    TypeCatalog.#ofBackends.set(lease.backend, types);
    return types;
  }

  knows(oids: readonly number[]): boolean {
    return oids.every((oid) => BUILTIN_TYPES.has(oid) || this.#known.get(oid) !== undefined);
  }

  /** An unknown type counts as a scalar and is shown as text. */
  get(oid: number): PostgresType {
    return BUILTIN_TYPES.get(oid) ?? this.#known.get(oid) ?? { oid, name: String(oid), scalarOid: oid, delimiter: ',' };
  }

  /** Looks up unknown types, without replacing the unnamed statement. */
  async learn(session: SqlSession, oids: readonly number[]): Promise<void> {
    if (this.knows(oids)) return;
    const entries = new Map<number, CatalogEntry>();
    await session.request(lookUp(oids.filter((oid) => !this.knows([oid]))), {
      row: (source, start) => {
        const [oid, name, elementOid, baseOid, delimiter] = decodeTextRow(source, start);
        entries.set(Number(oid), {
          oid: Number(oid),
          name: name ?? '',
          elementOid: Number(elementOid),
          baseOid: Number(baseOid),
          delimiter: delimiter ?? ',',
        });
      },
    });
    for (const entry of entries.values()) this.#known.set(entry.oid, this.#resolve(entry, entries));
  }

  #resolve({ oid, name, elementOid, baseOid, delimiter }: CatalogEntry, entries: ReadonlyMap<number, CatalogEntry>): PostgresType {
    const find = (wanted: number): PostgresType => {
      const entry = entries.get(wanted);
      return entry !== undefined && !BUILTIN_TYPES.has(wanted) ? this.#resolve(entry, entries) : this.get(wanted);
    };
    if (elementOid !== 0) return arrayOf(oid, find(elementOid));
    if (baseOid !== 0) return { ...find(baseOid), oid, name };
    return { oid, name, scalarOid: oid, delimiter };
  }
}

const STATEMENT = 'postern_types';

function lookUp(oids: readonly number[]): readonly Uint8Array[] {
  return [
    serialize.parse({ name: STATEMENT, text: LOOK_UP }),
    serialize.bind({ statement: STATEMENT, values: [`{${oids.join(',')}}`] }),
    serialize.execute(),
    serialize.close({ type: 'S', name: STATEMENT }),
    serialize.sync(),
  ];
}
