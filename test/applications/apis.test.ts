import { answers, call, describeApplication, freePort, installed, node, type Place } from './application.ts';

const TABLE = `CREATE TABLE notes (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text NOT NULL);
  CREATE TYPE mood AS ENUM ('sad', 'happy');
  CREATE TABLE authors (id int PRIMARY KEY, mood mood, note int REFERENCES notes);
  COMMENT ON TABLE notes IS 'what is kept'`;

describeApplication('PostGraphile 5', {
  async prepare(place) {
    await place.query(TABLE);
  },
  async start(place) {
    const port = await freePort();
    const preset = ['-P', 'postgraphile/presets/amber', '-c', place.url, '-s', place.schema, '-n', '127.0.0.1', '-p', String(port)];
    const program = place.run([node(), installed('node_modules/postgraphile/dist/cli-run.js'), ...preset], {
      env: { GRAPHILE_ENV: 'production' },
    });
    const ask = async (query: string) => {
      const { data, errors } = await call('POST', `http://127.0.0.1:${port}/graphql`, { query });
      if (errors !== undefined) throw new Error(JSON.stringify(errors));
      return data;
    };
    await program.until('it serves the table', () =>
      ask('{ allNotes { totalCount } allAuthors { nodes { mood noteByNote { body } } } }').then(
        () => true,
        (failure) => String(failure).includes('Cannot query') && Promise.reject(failure),
      ),
    );
    return {
      add: (note) => ask(`mutation { createNote(input: { note: { body: ${JSON.stringify(note)} } }) { note { id } } }`),
      list: async () => (await ask('{ allNotes(orderBy: PRIMARY_KEY_ASC) { nodes { body } } }')).allNotes.nodes.map(bodyOf),
      end: () => program.end(),
    };
  },
});

describeApplication('postgres-meta', {
  async prepare(place) {
    await place.query(TABLE);
  },
  async start(place) {
    const [port, adminPort] = [await freePort(), await freePort()];
    const env = { PG_META_HOST: '127.0.0.1', PG_META_PORT: String(port), PG_META_ADMIN_PORT: String(adminPort), PG_META_DB_URL: place.url };
    const program = place.run([node(), installed('node_modules/@supabase/postgres-meta/dist/server/server.js')], { env });
    const url = `http://127.0.0.1:${port}`;
    await program.until('it serves', () => answers(`${url}/health`));
    return {
      add: (note) => call('POST', `${url}/query`, { query: `INSERT INTO notes (body) VALUES ('${note}')` }),
      async list() {
        await describes(url, place);
        return (await call('POST', `${url}/query`, { query: 'SELECT body FROM notes ORDER BY id' })).map(bodyOf);
      },
      end: () => program.end(),
    };
  },
});

const bodyOf = ({ body }: { readonly body: string }) => body;

/** What Supabase's studio asks it for. */
async function describes(url: string, { schema }: Place): Promise<void> {
  const named = (list: readonly { readonly name: string }[]) => list.map(({ name }) => name).sort();
  const of = `included_schemas=${schema}`;
  const found = {
    tables: named(await call('GET', `${url}/tables?${of}`)),
    columns: named(await call('GET', `${url}/columns?${of}`)),
    types: named(await call('GET', `${url}/types?${of}`)),
    schemas: named(await call('GET', `${url}/schemas`)),
  };
  const expected = {
    tables: ['authors', 'notes'],
    columns: ['body', 'id', 'id', 'mood', 'note'],
    types: ['mood'],
    // Whoever is in the schema placement may use that of Postern's functions.
    schemas: schema === 'public' ? ['public'] : [schema, 'postern'],
  };
  if (JSON.stringify(found) !== JSON.stringify(expected)) throw new Error(`it describes ${JSON.stringify(found)}`);
  await call('GET', `${url}/generators/typescript?${of}`);
}
