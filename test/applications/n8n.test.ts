import { answers, describeApplication, freePort, installed, node } from './application.ts';

const OWNER = { email: 'ada@example.com', firstName: 'Ada', lastName: 'Lovelace', password: 'Of-the-tests-1' };

describeApplication('n8n 2', {
  async start(place) {
    const [port, brokerPort] = [await freePort(), await freePort()];
    const { host, port: serverPort, user, password, database } = place.login;
    const program = place.run([node(), installed('n8n/node_modules/n8n/bin/n8n'), 'start'], {
      env: {
        DB_TYPE: 'postgresdb',
        DB_POSTGRESDB_HOST: host,
        DB_POSTGRESDB_PORT: String(serverPort),
        DB_POSTGRESDB_USER: user,
        DB_POSTGRESDB_PASSWORD: password,
        DB_POSTGRESDB_DATABASE: database,
        DB_POSTGRESDB_SCHEMA: place.schema,
        N8N_USER_FOLDER: place.folder,
        N8N_LISTEN_ADDRESS: '127.0.0.1',
        N8N_PORT: String(port),
        N8N_RUNNERS_BROKER_PORT: String(brokerPort),
        N8N_DIAGNOSTICS_ENABLED: 'false',
        N8N_VERSION_NOTIFICATIONS_ENABLED: 'false',
        N8N_TEMPLATES_ENABLED: 'false',
      },
    });
    const url = `http://127.0.0.1:${port}`;
    await program.until('it serves', () => answers(`${url}/healthz/readiness`));
    let cookie = '';
    // As its pages do.
    const ask = async (path: string, body?: unknown) => {
      const reply = await fetch(`${url}/rest${path}`, {
        headers: { 'content-type': 'application/json', 'browser-id': 'tests', cookie },
        ...(body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) }),
      });
      cookie = reply.headers.getSetCookie()[0]?.split(';')[0] ?? cookie;
      const text = await reply.text();
      if (!reply.ok) throw new Error(`${path} answered ${reply.status}: ${text}`);
      return JSON.parse(text);
    };
    const { email, password: own } = OWNER;
    const logIn = () => ask('/login', { emailOrLdapLoginId: email, password: own });
    // The owner is there from the second start on.
    await program.until('its owner is logged in', () =>
      logIn()
        .catch(() => ask('/owner/setup', OWNER))
        .then(
          () => true,
          () => false,
        ),
    );
    return {
      add: (name) => ask('/workflows', { name, nodes: [], connections: {}, settings: {}, active: false }),
      list: async () => (await ask('/workflows')).data.map(({ name }: { readonly name: string }) => name),
      end: () => program.end(),
    };
  },
});
