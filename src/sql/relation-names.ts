import { DisconnectSignal, type Tenant } from '../router/lease.ts';
import type { Router } from '../router/router.ts';
import { BoundedMap } from '../runtime/bounded-map.ts';
import { SqlSession } from './session.ts';

/** The name may change, and the number may be that of another table some day. */
const KNOWN_MS = 10_000;
const REMEMBERED_MAX = 10_000;
/** Nobody waits long for a name, least of all where all backends are busy. */
const WAIT_MS = 300;
const TIMEOUT_MS = 1_000;

const NAMES = `SELECT c.oid, pg_catalog.format('%I.%I', CASE WHEN n.nspname = $2 THEN 'public' ELSE n.nspname END, c.relname)
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY ($1::pg_catalog.oid[])`;

/** The names of tables and indexes by their OIDs, which the tenants' own sessions find out, and which are remembered for some seconds. */
export class RelationNames {
  readonly #router: Pick<Router, 'lease'>;
  readonly #known = new BoundedMap<string, { readonly name: string | null; readonly until: number }>({ maxEntries: REMEMBERED_MAX });

  constructor(router: Pick<Router, 'lease'>) {
    this.#router = router;
  }

  /** @returns by OID, quoted and with the schema; those that do not exist, or that no backend was free for, are missing */
  async find(tenant: Tenant, oids: readonly number[]): Promise<ReadonlyMap<number, string>> {
    const now = performance.now();
    const unknown = oids.filter((oid) => !((this.#known.get(keyOf(tenant, oid))?.until ?? 0) > now));
    if (unknown.length > 0) await this.#ask(tenant, unknown).catch(() => {});
    return new Map(
      oids.flatMap((oid) => {
        const name = this.#known.get(keyOf(tenant, oid))?.name;
        return name == null ? [] : [[oid, name] as const];
      }),
    );
  }

  async #ask(tenant: Tenant, oids: readonly number[]): Promise<void> {
    const disconnect = new DisconnectSignal();
    const timer = setTimeout(() => disconnect.happen(), WAIT_MS);
    const lease = await this.#router.lease(tenant, { door: 'http', disconnect }).finally(() => clearTimeout(timer));
    const session = new SqlSession(lease, { timeoutMs: TIMEOUT_MS });
    try {
      await session.expect();
      const rows = await session.rows(NAMES, [`{${oids.join()}}`, lease.tenant.organization.placement.schema]);
      const names = new Map(rows.map(([oid, name]) => [Number(oid), name ?? null]));
      const until = performance.now() + KNOWN_MS;
      for (const oid of oids) this.#known.set(keyOf(tenant, oid), { name: names.get(oid) ?? null, until });
    } finally {
      await session.end();
    }
  }
}

function keyOf({ organization }: Tenant, oid: number): string {
  return `${organization.id}:${oid}`;
}
