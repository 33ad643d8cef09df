import { answers, call, describeApplication, freePort, installed, node } from './application.ts';

describeApplication('Unleash 8', {
  async start(place) {
    const port = await freePort();
    const secret = '*:*.a-token-of-the-tests';
    const program = place.run([node(), installed('unleash/node_modules/unleash-server/dist/server.js')], {
      env: {
        DATABASE_URL: place.url,
        DATABASE_SSL: 'false',
        HTTP_HOST: '127.0.0.1',
        PORT: String(port),
        INIT_ADMIN_API_TOKENS: secret,
        SEND_TELEMETRY: 'false',
        CHECK_VERSION: 'false',
      },
    });
    const url = `http://127.0.0.1:${port}`;
    await program.until('it serves', () => answers(`${url}/health`));
    const features = `${url}/api/admin/projects/default/features`;
    const named = (note: string) => note.replaceAll(' ', '-');
    return {
      // A name is taken after the first time.
      add: async (note) => (await list()).includes(note) || call('POST', features, { name: named(note) }, { authorization: secret }),
      list,
      end: () => program.end(),
    };
    async function list(): Promise<string[]> {
      const { features: found } = await call('GET', features, undefined, { authorization: secret });
      return found.map(({ name }: { readonly name: string }) => name.replaceAll('-', ' '));
    }
  },
});
