/**
 * What one writes by hand in place of Postern: a Fastify route over a pool of `pg` or `postgres`, which lets a key in by its
 * digest. A process of its own, started by http-peers.ts with its task as JSON in its argument; says its port.
 */
import { createHash } from 'node:crypto';
import Fastify from 'fastify';
import pg from 'pg';
import postgres from 'postgres';

export interface RouteTask {
  readonly driver: 'pg' | 'postgres';
  readonly pool: number;
  /** Of `pg`: statements are prepared once in a session, as `postgres` does by itself. */
  readonly named: boolean;
  /** SHA-256 of the one key, in hexadecimal. */
  readonly keyDigest: string;
  readonly login: {
    readonly host: string;
    readonly port: number;
    readonly user: string;
    readonly password: string;
    readonly database: string;
  };
}

type Query = (sql: string, parameters: readonly string[]) => Promise<{ readonly rows: readonly unknown[]; readonly rowCount: number }>;

const task: RouteTask = JSON.parse(process.argv[2] ?? '');
const query = task.driver === 'pg' ? throughPg(task) : throughPostgres(task);
const owners = new Map([[task.keyDigest, 'the bench']]);

const app = Fastify();
app.post<{ Body: { readonly sql: string; readonly params?: readonly string[] } }>('/api/query', async (request, reply) => {
  const key = request.headers.authorization?.replace(/^Bearer /, '') ?? '';
  if (!owners.has(createHash('sha256').update(key).digest('hex'))) return reply.code(401).send({ error: 'unknown key' });
  return query(request.body.sql, request.body.params ?? []);
});
await app.listen({ host: '127.0.0.1', port: 0 });
process.stdout.write(`${JSON.stringify(app.server.address())}\n`);

function throughPg({ login, pool: max, named }: RouteTask): Query {
  const pool = new pg.Pool({ ...login, max });
  const names = new Map<string, string>();
  return async (text, values) => {
    const name = named ? (names.get(text) ?? `s${names.size}`) : undefined;
    if (name !== undefined) names.set(text, name);
    const { rows, rowCount } = await pool.query({ text, values: [...values], ...(name === undefined ? {} : { name }) });
    return { rows, rowCount: rowCount ?? 0 };
  };
}

function throughPostgres({ login: { host, port, user, ...login }, pool: max }: RouteTask): Query {
  // It takes no folder of a socket for a host.
  const sql = postgres({ ...login, username: user, path: `${host}/.s.PGSQL.${port}`, max });
  return async (text, parameters) => {
    const rows = await sql.unsafe(text, [...parameters], { prepare: true });
    return { rows, rowCount: rows.count };
  };
}
