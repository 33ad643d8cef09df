import { randomBytes } from 'node:crypto';
import pg from 'pg';
import postgres from 'postgres';

/** An organization as its owner knows it. */
export interface TestOrganization {
  readonly id: string;
  readonly apiKey: string;
  readonly orgName: string;
  readonly email: string;
}

/** An HTTP reply with its body already read. */
export interface JsonReply {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore-start lint/suspicious/noExplicitAny: what came over the wire is checked by the assertions of the test
  readonly body: any;
  // biome-ignore-end lint/suspicious/noExplicitAny: see above
}

/** Both doors of a service, wherever it runs, as clients use them. */
export interface Doors {
  readonly httpUrl: string;
  readonly wirePort: number;
  signUp(orgName?: string): Promise<TestOrganization>;
  /** One JSON call; `key` is sent as the bearer token. */
  call(method: string, path: string, options?: { key?: string; body?: unknown; headers?: Record<string, string> }): Promise<JsonReply>;
  query(organization: TestOrganization, sql: string, params?: readonly unknown[]): Promise<JsonReply>;
  /** A connected `pg` client; end it yourself. */
  connect(organization: TestOrganization, options?: pg.ClientConfig): Promise<pg.Client>;
  /** A `postgres` client; end it yourself. */
  sql(organization: TestOrganization, options?: postgres.Options<Record<string, never>>): postgres.Sql;
}

export function doorsAt(httpPort: number, wirePort: number): Doors {
  const httpUrl = `http://127.0.0.1:${httpPort}`;
  const call: Doors['call'] = async (method, path, { key, body, headers } = {}) => {
    const reply = await fetch(`${httpUrl}${path}`, {
      method,
      headers: {
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    const text = await reply.text();
    return { status: reply.status, headers: reply.headers, body: text === '' ? undefined : JSON.parse(text) };
  };
  const login = ({ id, apiKey }: TestOrganization) => ({ host: '127.0.0.1', port: wirePort, user: id, database: id, password: apiKey });

  return {
    httpUrl,
    wirePort,
    call,
    async signUp(orgName = 'Acme') {
      const email = `${randomBytes(6).toString('hex')}@acme.test`;
      const { status, body } = await call('POST', '/api/auth/signup', { body: { orgName, email } });
      if (status !== 201) throw new Error(`sign-up answered ${status}: ${JSON.stringify(body)}`);
      return { id: body.id, apiKey: body.apiKey, orgName, email };
    },
    query: ({ apiKey: key }, sql, params) => call('POST', '/api/query', { key, body: params === undefined ? { sql } : { sql, params } }),
    async connect(organization, options) {
      const client = new pg.Client({ ...login(organization), ...options });
      client.on('error', () => {});
      await client.connect();
      return client;
    },
    sql: (organization, options) => postgres({ ...login(organization), onnotice: () => {}, ...options }),
  };
}
