import type { Me } from '../../session/session.ts';

export interface Snippet {
  readonly id: string;
  readonly title: string;
  /** Where it goes, or what it needs. */
  readonly note: string;
  readonly text: string;
}

/** Where the doors are. The key is never in a snippet: it comes from the environment. */
export interface Doors {
  readonly apiUrl: string;
  readonly connection: Me['connection'];
}

/** How to connect from everywhere, with the real host, port and TLS. */
export function snippetsFor({ apiUrl, connection }: Doors): readonly Snippet[] {
  const { host, port, user, database } = connection;
  const at = host.includes(':') ? `[${host}]` : host;
  const ssl = connection.sslmode === 'disable' ? 'disable' : 'require';
  const isTls = ssl === 'require';
  const url = `postgres://${user}:$API_KEY@${at}:${port}/${database}?sslmode=${ssl}`;
  const api = new URL(apiUrl);
  const sslOption = isTls ? ', ssl: true' : '';
  return [
    {
      id: 'env',
      title: '.env',
      note: 'With the key in it: keep it out of version control.',
      text: `DATABASE_URL=${url.replace('$API_KEY', '<API key>')}\nAPI_URL=${apiUrl}\n`,
    },
    {
      id: 'psql',
      title: 'psql',
      note: 'The key is the password.',
      text: `export API_KEY=…\nPGPASSWORD=$API_KEY psql "host=${host} port=${port} user=${user} dbname=${database} sslmode=${ssl}"`,
    },
    {
      id: 'pg',
      title: 'Node pg',
      note: 'npm install pg',
      text: `import pg from 'pg';

const pool = new pg.Pool({
  host: '${host}', port: ${port}, user: '${user}', database: '${database}',
  password: process.env.API_KEY${sslOption},
});
const { rows } = await pool.query('select $1::text as greeting', ['hello']);`,
    },
    {
      id: 'drizzle',
      title: 'Drizzle',
      note: 'npm install drizzle-orm pg; DATABASE_URL as in .env',
      text: `import { drizzle } from 'drizzle-orm/node-postgres';

const db = drizzle(process.env.DATABASE_URL);
const { rows } = await db.execute('select 1 as one');`,
    },
    {
      id: 'prisma',
      title: 'Prisma',
      note: 'DATABASE_URL as in .env. `prisma migrate dev` needs a second, empty organization as shadow database; `migrate deploy` and `db push` do not.',
      text: `// schema.prisma
datasource db {
  provider = "postgresql"
}

// prisma.config.ts
import { defineConfig } from 'prisma/config';

export default defineConfig({
  schema: 'schema.prisma',
  datasource: {
    url: process.env.DATABASE_URL,
    shadowDatabaseUrl: process.env.SHADOW_DATABASE_URL,
  },
});`,
    },
    {
      id: 'neon',
      title: 'Neon driver',
      note: 'npm install @neondatabase/serverless: SQL over HTTP and WebSockets, unchanged',
      text: `import { neon, neonConfig } from '@neondatabase/serverless';

neonConfig.fetchEndpoint = () => '${apiUrl}/sql';
neonConfig.wsProxy = () => '${api.host}${api.pathname === '/' ? '' : api.pathname}/v2';
neonConfig.useSecureWebSocket = ${api.protocol === 'https:'};

const sql = neon(process.env.DATABASE_URL);
const rows = await sql\`select \${'hello'}::text as greeting\`;`,
    },
    {
      id: 'psycopg',
      title: 'psycopg',
      note: 'pip install "psycopg[binary]"',
      text: `import os, psycopg

with psycopg.connect(host="${host}", port=${port}, user="${user}", dbname="${database}",
                     password=os.environ["API_KEY"], sslmode="${ssl}") as connection:
    print(connection.execute("select %s::text", ["hello"]).fetchone())`,
    },
    {
      id: 'sqlalchemy',
      title: 'SQLAlchemy',
      note: 'pip install sqlalchemy "psycopg[binary]"',
      text: `import os
from sqlalchemy import create_engine, text, URL

engine = create_engine(URL.create(
    "postgresql+psycopg", username="${user}", password=os.environ["API_KEY"],
    host="${host}", port=${port}, database="${database}", query={"sslmode": "${ssl}"}))
with engine.connect() as connection:
    print(connection.execute(text("select 1")).scalar())`,
    },
    {
      id: 'jdbc',
      title: 'JDBC',
      note: 'org.postgresql:postgresql',
      text: `var connection = DriverManager.getConnection(
    "jdbc:postgresql://${at}:${port}/${database}?sslmode=${ssl}",
    "${user}", System.getenv("API_KEY"));`,
    },
    {
      id: 'pgx',
      title: 'Go pgx',
      note: 'go get github.com/jackc/pgx/v5',
      text: `url := fmt.Sprintf("postgres://${user}:%s@${at}:${port}/${database}?sslmode=${ssl}", os.Getenv("API_KEY"))
connection, err := pgx.Connect(ctx, url)`,
    },
    {
      id: 'curl',
      title: 'curl',
      note: 'The other door: JSON over HTTP.',
      text: `curl ${apiUrl}/api/query -H "Authorization: Bearer $API_KEY" \\
  -H 'content-type: application/json' -d '{"sql": "select $1::text as greeting", "params": ["hello"]}'`,
    },
    {
      id: 'fetch',
      title: 'fetch',
      note: 'From edge functions, workers, anything without sockets.',
      text: `const response = await fetch('${apiUrl}/api/query', {
  method: 'POST',
  headers: { authorization: \`Bearer \${process.env.API_KEY}\`, 'content-type': 'application/json' },
  body: JSON.stringify({ sql: 'select $1::text as greeting', params: ['hello'] }),
});
const { rows } = await response.json();`,
    },
  ];
}
