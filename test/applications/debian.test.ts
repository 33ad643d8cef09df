import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { call, describeApplication, freePort } from './application.ts';

const POWERDNS_SCHEMA = '/usr/share/pdns-backend-pgsql/schema/schema.pgsql.sql';

const missing = (name: string, files: readonly string[]) =>
  files.every((file) => existsSync(file)) ? undefined : `needs Debian's ${name}, which is not installed`;

describeApplication('PowerDNS 4.7', {
  missing: missing('pdns-backend-pgsql', [POWERDNS_SCHEMA]),
  async prepare(place) {
    await place.query(await readFile(POWERDNS_SCHEMA, 'utf8'));
  },
  async start(place) {
    const [port, apiPort] = [await freePort(), await freePort()];
    const { host, port: serverPort, user, password, database } = place.login;
    const settings = {
      launch: 'gpgsql',
      'gpgsql-host': host,
      'gpgsql-port': serverPort,
      'gpgsql-user': user,
      'gpgsql-password': password,
      'gpgsql-dbname': database,
      'gpgsql-dnssec': 'yes',
      'local-address': '127.0.0.1',
      'local-port': port,
      'socket-dir': place.folder,
      webserver: 'yes',
      'webserver-port': apiPort,
      api: 'yes',
      'api-key': 'of-the-tests',
    };
    await writeFile(
      join(place.folder, 'pdns.conf'),
      Object.entries(settings)
        .map(([name, value]) => `${name}=${value}\n`)
        .join(''),
    );
    const program = place.run(['/usr/sbin/pdns_server', `--config-dir=${place.folder}`, '--daemon=no', '--guardian=no']);
    const zones = `http://127.0.0.1:${apiPort}/api/v1/servers/localhost/zones`;
    const key = { 'x-api-key': 'of-the-tests' };
    const list = (): Promise<readonly { readonly name: string }[]> => call('GET', zones, undefined, key);
    await program.until('it answers', () =>
      list().then(
        () => true,
        () => false,
      ),
    );
    if (!(await list()).some(({ name }) => name === 'notes.test.')) {
      const zone = { name: 'notes.test.', kind: 'Native', nameservers: ['ns.notes.test.'] };
      await call('POST', zones, zone, key);
    }
    return {
      add(note) {
        const name = `${note.replaceAll(' ', '-')}.notes.test.`;
        const set = { name, type: 'TXT', ttl: 60, changetype: 'REPLACE', records: [{ content: `"${note}"` }] };
        return call('PATCH', `${zones}/notes.test.`, { rrsets: [set] }, key);
      },
      async list() {
        const { rrsets } = await call('GET', `${zones}/notes.test.`, undefined, key);
        const texts: readonly { readonly type: string; readonly records: readonly { readonly content: string }[] }[] = rrsets;
        return texts.filter(({ type }) => type === 'TXT').flatMap(({ records }) => records.map(({ content }) => content.slice(1, -1)));
      },
      end: () => program.end(),
    };
  },
});
